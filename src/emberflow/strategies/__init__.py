"""Ways to train one model on many nodes, and the network between them. Run in the NODE.

data_parallel     synchronous: plain Keras `fit` on each rank, gradients and metrics over all ranks
periodic          asynchronous: each worker trains alone and averages with a server every so many steps
parameter_server  asynchronous: variables on parameter servers, steps from one coordinator
transport         sums and gathers over all ranks: a socket ring, or TensorFlow's collectives
"""
