"""Measurements, one file a question: ``python -m benchmarks.NAME`` prints one JSON line last."""
