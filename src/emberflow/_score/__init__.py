"""SCORING: what a model takes and gives, and rows through it.

The driver reads the model's facts (`facts`, `saved_model`, `keras_model`), plans inputs and outputs (`inputs`,
`outputs`) and ships the model (`source`). A task cuts its rows into batches (`task`), finds those that do not fit
(`rows`), and asks the model, which its process loads once (`predictor`). With GPUs the model is in a process that the
executor's tasks share (`gpu_scorer` on the tasks' side, `server` on its own).
"""
