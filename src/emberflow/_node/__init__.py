"""In the NODE: the process of one node, and what your function sees of it. No PySpark here.

`main` is its entry point, `task_connection` its connection to the task, `context` is `ctx`.
"""
