"""What strategies need of the network: sum and average tensors and gather slices over all ranks.

`interface` is what a strategy sees; `ring` is the authenticated socket ring for CPUs, `collectives` TensorFlow's own
collectives for GPUs, `connectors` both by name. `array_connection` and `threaded_server` are for the
strategies that have servers of their own.
"""
