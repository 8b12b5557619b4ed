"""The parts: `spark_session` on the driver, `graph_training` in the nodes, `feed_rows` for the rows between them.

`weight_combiner` says how the parameter server merges what workers have learned; `partitioner` spreads an RDD anew.
"""
