"""On the DRIVER: what Spark offers, one Spark job per attempt, supervision, restarts, what a person sees.

`supervisor` runs attempts. Each `attempt` has a `hub` (the connections to all nodes), a `job` (the Spark stages, on a
thread of its own) and a `value_server` (large values). `slots` and `profiles` find room for the nodes before
anything starts, `row_routing` directs rows to ranks.
"""
