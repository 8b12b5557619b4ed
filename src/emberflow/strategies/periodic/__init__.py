"""Periodic averaging: each worker trains by itself and exchanges its values with a server every so many steps.

`server` and `server_values` run on a node of role ps, without TensorFlow; `client` and `schedule` on each worker,
behind `callback` (Keras) or `graph_session` (graphs of TensorFlow 1). `combiners` are the rules by which a push
changes the server's values; `frame_kinds` and `value_layout` are what both sides agree on.
"""
