"""Decisions as pure functions and frozen values: no PySpark, TensorFlow, clock, environment or files."""
