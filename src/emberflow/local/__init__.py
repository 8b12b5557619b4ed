"""Spark on this machine: the Java that runs it, its daemons, and a local cluster for tests, demos and development."""
