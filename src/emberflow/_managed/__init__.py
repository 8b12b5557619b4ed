"""In a task that a CLUSTER MANAGER has started, without Spark: its place, the way to the chief, its node."""
