"""What a task says of its node when the driver asks why others wait for it."""

# What a task says of its node, and whether that may last: who has no rows yet is not to blame for having none.
STARTING, TAKING_ROWS, WAITING_FOR_ROWS, WORKING = "starting", "taking rows", "waiting for rows", "working"
EXCUSED = {STARTING, TAKING_ROWS, WAITING_FOR_ROWS}
