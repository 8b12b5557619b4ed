"""The page of a run: what its record says, in a browser, live or from a file. Nothing here knows Spark or TensorFlow.

`html` makes one self-contained document of `run.html`, `run.css` and the scripts; `server` serves it on loopback with
the changes of the runs behind it, and `report` writes it to a file together with all that there is to show.
"""
