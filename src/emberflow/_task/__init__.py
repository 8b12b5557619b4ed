"""In the SPARK TASK: start keeper and node, bring rows to the node, exchange with other ranks, report to the driver.

`node_task` is what Spark calls. `node_runner` runs one node from its start to its end; `node_monitor` listens to
node, keeper and driver on one thread and puts `events`; `row_writer` spools or streams the rank's rows.
"""
