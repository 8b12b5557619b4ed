"""Synchronous data parallel training: plain Keras `fit` on each rank, hooks on the model and optimizer instances.

`distribute` installs the hooks; `replica` is one model on one rank and the step that it is in; `gradients`,
`metric_state` and `broadcast` exchange what must be equal; `fitting` decides which callbacks run on which rank.
"""
