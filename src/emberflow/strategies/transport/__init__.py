"""What strategies need of the network: sum and average tensors and gather slices over all ranks.

`interface` is what a strategy sees; `ring` is the authenticated transport for CPUs, `collectives` TensorFlow's own
collectives for GPUs, `connectors` both by name. Of the ring: `bucket_exchange` averages gradients while others are
computed, `circle` sums over sockets by the rounds of `circulant`, `host_sum` over ranks that share memory, `peers` is
the failure that all connections of a rank share. `array_connection` and `threaded_server` are for the strategies that
have servers of their own.
"""
