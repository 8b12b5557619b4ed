"""One node: its process, its ends of the wires, and what your function sees. No PySpark here.

Who owns what:
    keeper     the small process that ends a node, whatever happens around it
    child      starting a keeper with its node, from the task's side
    watch      one thread in the task that listens to node, keeper and driver
    ports      a port that is held until TensorFlow takes it
    main       the node's entry point
    context    `ctx`
    outcome    how a node ended, as data
"""
