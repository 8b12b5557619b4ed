"""Keras 3 on parameter servers: one coordinator, steps on all workers, rows where Spark brought them.

`coordinator` is `fit`; `remote_step` one step on a worker; `row_sources` the rows of the node that runs a step;
`row_exchange` sends the rows of slow nodes to fast ones; `embedding` is a table larger than one server.
"""
