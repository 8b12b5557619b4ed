"""What strategies need of the network: sum tensors and gather slices over all ranks.

`interface` is what a strategy sees; `ring` is the authenticated socket ring for CPUs, `collectives` TensorFlow's own
collectives for GPUs. `array_frames` and `threaded_server` serve the strategies that have servers of their own.
"""
