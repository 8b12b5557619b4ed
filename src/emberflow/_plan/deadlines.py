"""How long Emberflow waits: every deadline, grace period and polling interval, in seconds.

The defaults of those that a user may set are in `config`. Use them as `deadlines.NAME`: then a test can replace one
for all modules. A parameter's default is read once, when its function is defined.
"""

# Connecting: `_protocol`, and the tasks that dial the driver.

DIAL_TIMEOUT = 5.0  # The driver listens before its tasks start: if it does not answer, it is not reachable.
CONNECT_ONCE_TIMEOUT = 3.0  # A new connection is faster than the kernel's third try of an old one.
FIRST_DIAL_PAUSE = 0.02  # A server that turned a client away usually has room again after one handshake.
LONGEST_DIAL_PAUSE = 1.0  # Pauses double up to here, so that thousands of clients do not keep a server busy.
HANDSHAKE_TIMEOUT = 5.0  # For all reads together: a client that sends byte after byte is dropped too.
OUT_OF_FILES_PAUSE = 0.05  # Without a free descriptor `accept` fails at once: its thread would spin.
KEEPALIVE_IDLE = 5  # Whole seconds, as the kernel wants. It notices a host that vanished after 5 + 3 * 3 s.
KEEPALIVE_INTERVAL = 3  # Whole seconds between probes; a lost packet must not end a connection.
KEEPALIVE_PROBES = 3  # Probes, not seconds.
SHORTEST_WAIT = 0.01  # For a deadline that has just passed: a timeout of 0 would make a socket non-blocking.

# The driver: `_driver`.

SLOT_POLL = 0.05  # Spark offers nothing to wait on for executors that register.
UNDIALLED_TIMEOUT = 8.0  # Longer than `DIAL_TIMEOUT`: running tasks that have not dialled by then cannot.
START_GRACE = 1.0  # A task's own deadline comes first: it knows more about the cause.
CAUSE_SETTLE = 0.3  # Other nodes may still name the true cause of a failure.
LOST_TASK_SETTLE = 1.2  # Spark may still say why a task is gone.
LOSS_POLL = 0.1  # Spark's records of tasks offer nothing to wait on.
LOST_CONTAINER_SETTLE = 8.0  # YARN's reason comes with heartbeats of three parties, up to 3 s apart.
YARN_ANSWER_TIMEOUT = 3.0  # What YARN says stands beside an error that must not wait for it.
QUIT_GRACE = 3.0  # Tasks end by themselves and delete their files, before Spark is told to end them.
TASKS_END_TIMEOUT = 20.0  # Longer than `KEEPER_END_TIMEOUT` and `STREAM_END_TIMEOUT` together.
COPY_END_TIMEOUT = 10.0  # Spark ends the copy of a task that has succeeded within 4 s.
SEND_TIMEOUT = 10.0  # A task reads on a thread of its own: if it reads nothing for so long, it is stuck.
ANSWER_TIMEOUT = 10.0  # A task answers from a thread that does nothing else but listen.
STALL_CHECK_SHARE = 0.25  # Of the time that an exchange may stand still: it is exceeded by a quarter at most.
VALUES_END_TIMEOUT = 10.0  # Sockets are shut down before; a thread may still write its last bytes to disk.

# A Spark task and its node: `_task`.

HEARTBEAT_SHARE = 0.25  # Of its limit: after it a silent node is asked, and has the rest of it to answer.
LEAVE_TIMEOUT = 10.0  # A node that has returned runs its exit handlers.
SERVING_TIMEOUT = 2.0  # A parameter server may sit in TensorFlow's own join, which never returns.
LOG_DRAIN_TIMEOUT = 1.0  # A node that has ended may have children that hold its output open.
LAST_LINES_TIMEOUT = 0.2  # What a node printed before it failed is on its way; its process still runs.
KEEPER_END_TIMEOUT = 10.0  # The keeper kills the node and its descendants, and deletes their files.
STREAM_END_TIMEOUT = 5.0  # The thread of a stream may be in the middle of a batch.
FEED_REPORT_INTERVAL = 1.0  # The driver's line about rows changes so often at most.
GPU_FREE_TIMEOUT = 30.0  # A process that scores ends after its batch; its GPU memory is free some time later.
GPU_LOCK_TIMEOUT = 5.0  # The node of an attempt that has failed is being killed by its keeper.
GPU_MEMORY_POLL = 0.2  # NVML has nothing to wait on.
GPU_SAMPLE_INTERVAL = 5.0  # TensorFlow keeps its memory to the end: rare samples see its peak as well.

# Tasks that a cluster manager starts, without Spark: `_managed`.

MANAGED_START_TIMEOUT = 600.0  # Until all tasks are up: images are pulled, and pods wait for hosts.
MANAGED_DIAL_PAUSE = 0.5  # Neither DNS nor a task that does not listen yet offers anything to wait on.
VERDICT_TIMEOUT = 90.0  # Beyond evaluator_timeout: longer than an attempt takes to stop all of its tasks.
ORDER_TIMEOUT = 300.0  # The chief lists all files first: thousands of them on an object store.
REFUSAL_TIMEOUT = 60.0  # Tasks that start a minute later still hear why the chief does not begin.
VERDICT_SEND_TIMEOUT = 5.0  # A few hundred bytes: they wait only for a host that is gone.

# Training: `strategies` and `ml`.

PROGRESS_INTERVAL = 0.5  # A bar that changes twice per second looks alive; more would load the driver.
RING_WAITING_GRACE = 1.0  # A neighbour that is alive says so within this, after its own timeout.
EXCHANGE_END_TIMEOUT = 5.0  # The thread that exchanges gradients finds its connections closed.
GOODBYE_TIMEOUT = 10.0  # A rank that never comes to the last exchange must not keep the others.
LAST_STEP_TIMEOUT = 600.0  # The chief's steps in flight end before its function returns.
EVALUATION_INTERVAL = 1.0  # An evaluator looks for new checkpoints so often: a listing of one folder.
FINISH_ANSWER_SHARE = 0.25  # Of exchange_timeout: a worker that waits for others hears in time.

# HDFS: `storage`.

OUTAGE_TIMEOUT = 180.0  # A NameNode starts within a minute, and is in safe mode for half a minute after that.
OUTAGE_POLL = 1.0  # HDFS offers nothing to wait on for the end of its safe mode.
FAILOVER_PAUSE = 0.5  # Between the four attempts of one call: a wrong address is an error after seconds.

# Remote folders mirrored on a node's disk: `_node`.

UPLOAD_TIMEOUT = 1800.0  # For one file or folder: tens of GB over a slow network.
UPLOAD_RETRY_PAUSE = 1.0  # After the first failure that may pass; pauses grow by 4.
UPLOAD_RETRY_TIMEOUT = 30.0  # From the first failure: HDFS was waited for before that, S3 tried again.
MIRROR_SCAN_INTERVAL = 10.0  # A file of your own writer is uploaded when it has not changed for so long.
BATCH_SYNC_INTERVAL = 1.0  # Between steps, files are looked at so often at most: steps may take milliseconds.
LOGS_INTERVAL = 5.0  # Remote event files are listed so often; TensorBoard looks at its folder as often.

# A live cluster: `_node`, `_task` and `_driver`.

FEED_OPEN_TIMEOUT = 10.0  # Your function asks for its feeds one after the other, soon after each other.
QUERY_START_TIMEOUT = 60.0  # Spark may bring the first micro-batch before its call of start() returns.
FEED_COUNTS_INTERVAL = 1.0  # A node tells the driver how many rows it has so often at most.
FEED_RATE_WINDOW = 10.0  # Rows per second are those of this time: shorter ones jump with each partition.
FEED_FAILURE_SETTLE = 8.0  # A feeding task sees a dead node at once; why it died is known some seconds later.
FEED_NOTICE = 30.0  # A call that waits for your function for so long says so, once.
FEED_REFUSAL_TIMEOUT = 2.0  # Feeding tasks read why they are refused before their connections are closed.
FEEDS_CLOSE_TIMEOUT = 5.0  # Connections are closed before; a thread may still write to disk.

# Scoring: `_score`.

SCORER_START_TIMEOUT = 60.0  # Another task of the executor may be starting the process, and hold the lock.
SCORER_LOCK_POLL = 0.05  # A lock with a deadline needs a signal handler, or polling.
SCORER_IDLE_TIMEOUT = 5.0  # The next task of a job comes within this, and finds the model loaded.
SCORER_LEAVE_RETRY = 0.1  # Whoever holds the lock is about to connect, or ends soon.
SCORER_END_TIMEOUT = 10.0  # The child ends after the batch that it computes.

# Files: `tfrecord`.

ABANDONED_WRITE_AGE = 7 * 86400.0  # A write that made no new file for so long belongs to no running job.
MAX_FILE_AGE = 7 * 86400.0  # The default of the option `maxFileAge`, as of Spark's own file stream.

# This machine: `local` and `cli`.

CLUSTER_START_TIMEOUT = 90.0  # Several JVMs start at the same time, on few cores.
MAVEN_TIMEOUT = 900.0  # Maven brings 100 MB of jars the first time, over a slow line.
HADOOP_START_TIMEOUT = 180.0  # Four JVMs start at the same time, on few cores; the first formats its folder.
HADOOP_COMMAND_TIMEOUT = 120.0  # A command of Hadoop's shell tries a server that is away for some time.
HADOOP_POLL = 0.1  # The NameNode offers nothing to wait on for its data nodes.
DAEMONS_END_TIMEOUT = 15.0  # A JVM is killed at once; its folder may be large, or on a slow disk.
JAVA_PROBE_TIMEOUT = 30.0  # A JVM that prints its version, on a machine that is busy.
IMPORT_TIMEOUT = 120.0  # TensorFlow from a cold or shared disk.
LOOPBACK_TIMEOUT = 5.0  # Loopback answers at once, or a firewall drops the packets.
DOCTOR_TIMEOUT = 120.0  # The default of `emberflow doctor --timeout`: a session starts, and its executors.

# Cluster managers: what `deploy` tells them, in whole seconds, as they want.

RENDERED_RETRY_PAUSE = 10  # Between attempts of a job: its failed pods and their names are gone by then.
RENDERED_PROBE_INTERVAL = 5  # Between looks at the port of a server that starts; a look costs nothing.

# The record of a run and its page: `_record` and `page`.

RECORD_INTERVAL = 0.5  # Events are appended to a local file so often: a page that follows it looks alive.
REMOTE_RECORD_INTERVAL = 5.0  # A store that cannot append gets up to a megabyte at each turn.
RECORD_END_TIMEOUT = 30.0  # The last events of a run; its caller waits for them.
USAGE_INTERVAL = 2.0  # A node's memory changes slowly; above `USAGE_NODES` nodes each tells less often.
USAGE_NODES = 100  # Nodes, not seconds: a driver is told of fifty nodes per second at most.
RECORD_SIGN_OF_LIFE = 60.0  # Without events for so long the record says that the driver is there.
PAGE_INTERVAL = 0.5  # A browser is told what is new so often: curves that grow twice per second look alive.
PAGE_START_TIMEOUT = 20.0  # Two small packages are imported, and a thread listens.
PAGE_END_TIMEOUT = 2.0  # Browsers are told the last news; one that does not read is left.
REPORTS_END_TIMEOUT = 1.0  # Of a task whose end is in its rows too: it does not wait for a slow driver.
CELL_INTERVAL = 1.0  # Each update of a notebook's cell is stored in the notebook and drawn anew.
