"""Synchronous data parallel training: plain Keras `fit` on each rank, hooks on the model and optimizer instances.

`distribute` installs the hooks; `replica` is one model on one rank and the step that it is in; `gradients`,
`metric_state` and `broadcast` exchange what must be equal; `fitting` decides which callbacks run on which rank.
`first_batch` and `probe` find out whether losses and metrics are means or sums over rows (`row_kinds`), and
`loss_weighting` and `batch_means` weigh them accordingly.
"""
