"""Every deadline and interval of this distribution, in seconds; signatures show those that the old libraries had."""

FEED_TIMEOUT = 600  # TensorFlowOnSpark's: nothing is taken of rows that wait, and no result comes
RESERVATION_TIMEOUT = 600  # TensorFlowOnSpark's: until all nodes have joined
SHUTDOWN_TIMEOUT = 259200  # TensorFlowOnSpark's: three days, for functions that train on after the last row
UNLIMITED_TIMEOUT = 1e9  # what `timeout=-1` means to Emberflow, which wants a number
FEED_WATCH_INTERVAL = 0.2  # What a program waits at most once its last node has called terminate().
EVALUATOR_GRACE = 10.0  # An old evaluator loops for ever; it may end the evaluation that it is in.
RESERVATION_POLL = 0.2  # between two questions of a client whether all have registered
SOCKET_TIMEOUT = 30.0  # A client on the same machine that says nothing for so long is gone.
TENSORBOARD_TIMEOUT = 120.0  # It imports TensorFlow before it serves; on a busy host that takes a while.
TENSORBOARD_POLL = 0.2  # between two looks at whether it serves
STREAMING_POLL = 1.0  # between two looks at whether a StreamingContext or its nodes have ended
REPEATED_TASK = 5.0  # Spark starts a failed task again at once, but waits three seconds for its own executor.
REPEATED_TASKS = 60.0  # for all of them: Spark gives a task up after the fourth time
QUIET_DRAIN = 0.5  # A feeder in another process may be about to put its next row.
GPU_RETRY = 30.0  # TensorFlowOnSpark's: as often as it has been tried, until another process releases its GPU
NVIDIA_SMI_TIMEOUT = 60.0  # A driver that starts up answers late.
GRACE_SECS = 30  # TensorFlowOnSpark's, of TFEstimator: shown to programs that ask for it, and not needed
BARRIER_TIMEOUT = 86400.0  # A lost node ends a barrier at once; this is for stopped ones. Spark waits a year.
BARRIER_EXECUTOR_TIMEOUT = 30.0  # Executors of a busy cluster register one by one.
BARRIER_START_TIMEOUT = 600.0  # as long as Spark itself waits for the slots of a barrier stage
