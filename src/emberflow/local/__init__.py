"""Spark and Hadoop on this machine: their Java, their daemons, local clusters for tests, demos and development."""
