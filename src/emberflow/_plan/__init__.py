"""Decide, touch nothing: pure functions and frozen values.

Who owns what:
    roles      which rank is chief, worker, ps or evaluator
    tf_config  the TF_CONFIG of one node
    steps      how many steps an epoch has and which rows each takes
    plan       RunPlan, all of it in one printable value

No PySpark, TensorFlow, clock, environment or files here.
"""
