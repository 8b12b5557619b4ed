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
    array_wire     frames with arrays, for all that follows
    reception      a keyed door that stays open, a thread for each that comes in
    combiners      periodic averaging: what a push does to the server's values
    layout         periodic averaging: which values are where in the bytes for which server
    centre         periodic averaging: the server's values, and who has pushed what
    periodic_*     periodic averaging: the server, a worker's connections, graphs of TensorFlow 1
    meeting        periodic averaging: when a worker meets the server
    periodic       periodic averaging: the callback for a Keras model
    coordinator    parameter servers: `fit`, from the chief, on all nodes
    remote_step    parameter servers: one step of a Keras model on a node
    sources        parameter servers: the rows of the node that runs a step
    row_exchange   parameter servers: rows of slow nodes for fast ones
    embedding      parameter servers: an embedding in several variables
    checks         models that cannot be trained exactly, refused with a way out
"""
