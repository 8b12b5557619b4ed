"""Markers between rows in the queues of a node."""


class Marker:
    """Not a row."""


class EndPartition(Marker):
    """The rows of a partition end here; the rows of another may follow."""
