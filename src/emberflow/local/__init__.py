"""Spark on this machine: a Java to run it, its daemons, a cluster of its own for tests, demos and development."""
