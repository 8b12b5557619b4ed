"""On the DRIVER: what Spark offers, one Spark job per attempt, supervision, restarts, progress on the console.

`supervisor` runs attempts. Each `attempt` has a `hub` (the connections to all nodes), a `job` (the Spark stages, one
thread each), a `failures` tracker and a `value_server` (large values). `slots` and `profiles` count slots for the
nodes before anything starts, `row_routing` directs rows to ranks, `spark_errors` translates the errors of Spark.
"""
