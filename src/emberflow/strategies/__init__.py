"""Ways to train one model on many nodes.

Who owns what:
    transport      what a strategy needs of the network: sum tensors, gather slices
    link           frames between one rank and its two neighbours, with a deadline and a word for every end
    buffers        memory that TensorFlow and the ring share without copies
    ring           the keyed socket ring, the transport for CPUs
    ring_ops       the ring inside TensorFlow graphs
    collectives    TensorFlow's own collectives, the transport for GPUs
    data_parallel  `distribute`: the hooks on one Keras model
    gradients      one reduction of all gradients, weighted by rows
    replica        one model on one rank, and the step that it is in: its rows, what to undo when it has none
    metrics        the state of the metrics, summed over ranks
    spread         the chief's weights and seeds to all ranks, moving statistics averaged
    fitting        `fit` and `evaluate`: which callbacks run where, where to start, when all stop
    checks         models that cannot be trained exactly, refused with a way out
"""
