"""Scoring: a model's inputs and outputs, and rows through it.

The driver describes the model, plans its inputs and outputs, and ships it (`score_plan`, `describe`, `model_source`).
A task cuts its rows into batches, rejects rows that do not fit, and calls the model, which its process loads once
(`score_task`, `scoring`, `predictor`). With GPUs the model is in a process that all tasks of an executor share
(`gpu_scorer` in the task, `gpu_server` in that process).
"""
