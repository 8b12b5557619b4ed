"""The record of a run: what happened, event by event, and the state that follows from it.

`events` are written by the driver (`recorder`, `record_writer`) into a folder on any storage (`record_files`); the
page, the report and `emberflow runs` read them again and fold them into a `run_state`. Nothing here knows Spark.
"""
