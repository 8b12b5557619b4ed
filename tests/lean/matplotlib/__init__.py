"""Stands in front of the real package in the processes that tests start: no node needs it, and Keras imports it."""

raise ImportError("matplotlib is left out of the processes that tests start; see tests/conftest.py")
