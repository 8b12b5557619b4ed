"""The node's entry point: tell its addresses, receive the cluster, call your function, tell how it ended.

Started by the keeper as ``python -m emberflow._node.main FD FD``: its sockets to the task, for messages and for rows.
"""

import dataclasses
import errno
import itertools
import json
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import cloudpickle

from emberflow import storage
from emberflow._collector import pause_collector_for_import
from emberflow._lazy_keras import load_parts_late
from emberflow._node.checkpoints import Checkpoints
from emberflow._node.context import Context
from emberflow._node.feed_receiver import receive_feed
from emberflow._node.followed_logs import follow_logs
from emberflow._node.held_port import held_port
from emberflow._node.mirror import Mirror
from emberflow._node.node_spec import VALUE_FILE, NodeSpec, receive_spec
from emberflow._node.preload import preload, preloads
from emberflow._node.rows_taken import rows_told
from emberflow._node.serving import ServedError
from emberflow._node.strategy_services import StrategyServices
from emberflow._node.task_connection import TaskConnection
from emberflow._node.tensorboard import start_tensorboard
from emberflow._plan.tf_config import tf_config_of
from emberflow._protocol.driver_messages import Cluster
from emberflow._protocol.node_messages import Raised, Ready, Returned, TensorBoardStarted
from emberflow._protocol.sealed_file import SealedWriter
from emberflow._protocol.sockets import address_of
from emberflow.errors import ClusterError, ConfigError, DataError, EmberflowError, ModelError, NodeFailedError

if TYPE_CHECKING:
    from emberflow._feed.feed import Feed
    from emberflow._node.live_feeds import LiveFeeds

PACKAGE = str(Path(__file__).parent.parent)
TEXT_LIMIT = 20_000  # characters; the text travels to the driver and is printed there


def main(control_fd: int, feed_fd: int) -> None:
    """Run one node, from its `NodeSpec` to its last message, over these sockets to its task."""
    control, feed = socket.socket(fileno=control_fd), socket.socket(fileno=feed_fd)
    for sock in (control, feed):
        sock.set_inheritable(False)
    task = TaskConnection(control)
    start = task.receive_start()
    sys.path[:] = start.sys_path
    spec = receive_spec(feed)
    storage.apply_settings(spec.storage)
    task.listen()
    pause_collector_for_import("tensorflow")
    load_parts_late()

    ending = _work(spec, task, feed)
    sys.stdout.flush()
    sys.stderr.flush()
    task.send(ending)
    task.over.wait()  # no node ends before all are done, or the others' collectives break


def _work(spec: NodeSpec, task: TaskConnection, feed: socket.socket) -> Returned | Raised:
    """Load your function, join the cluster, call it; return the last message."""
    started = time.monotonic()
    context: Context | None = None
    live: LiveFeeds | None = None
    try:
        fn = None if preloads(spec) else _load(spec)
        held = held_port((spec.tf_port, spec.tf_port) if spec.tf_port else spec.plan.port_range)
        services = StrategyServices(spec)
        live = _live_feeds(spec, task)
        mine = {"tf": address_of(spec.host, held.port)} | services.endpoint | (live.endpoint if live else {})
        task.announce(Ready(mine))  # rows are on their way from here on
        fn = fn or _load(spec, preload_first=True)
        cluster = task.join_cluster()
        rows = _take_rows(spec, cluster, task, feed)
        context = _context(spec, cluster.endpoints, services, task, rows, live)
        started = time.monotonic()
        ps_work = services.ps_work(task) if spec.me.role == "ps" else None
        with context._mirror, rows_told(rows, task.send, spec.plan):  # noqa: SLF001 - internal to Emberflow
            value = _call(ps_work or fn, context)
        if live is not None:
            live.close()
        services.leave()  # the chief may wait for what this worker has learned
        task.kept = services
        held.close()
        return _returned(spec, value, time.monotonic() - started, rows)
    except ServedError:
        return _returned(spec, None, time.monotonic() - started)
    except SystemExit as leave:
        if leave.code in (None, 0):
            return _returned(spec, None, time.monotonic() - started)
        return _raised(leave, f"SystemExit: your function called sys.exit({leave.code!r})", started)
    except BaseException as error:  # noqa: BLE001 - the driver must be told of every error
        if live is not None:
            live.close(_feeds_failed(spec, error))
        if _is_refusal(error, context):
            return dataclasses.replace(_raised(error, error.problem, started), is_refused=True)
        return _raised(error, _own_frames(error), started)


def _live_feeds(spec: NodeSpec, task: TaskConnection) -> "LiveFeeds | None":
    """Listen for feeding tasks, where the node belongs to a live cluster and trains."""
    if spec.live is None or not spec.me.trains:
        return None
    from emberflow._node.live_feeds import LiveFeeds

    live = LiveFeeds(spec, task.send)
    task.on_feed_message(live.on_message)
    return live


def _feeds_failed(spec: NodeSpec, error: BaseException) -> NodeFailedError:
    return NodeFailedError(
        f"Your function raised {type(error).__name__} on {spec.me.name}: {error}",
        fix="See the error that cluster.train() or cluster.stop() raises: it has the traceback.",
    )


def _is_refusal(error: BaseException, context: Context | None) -> TypeGuard[EmberflowError]:
    """Tell whether no code of yours was running: you did nothing that a traceback could show."""
    if context is None:
        return isinstance(error, ClusterError)
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    is_known = isinstance(error, ConfigError | DataError | ModelError)
    return is_known and all(file.startswith(PACKAGE) for file in files)


def _load(spec: NodeSpec, *, preload_first: bool = False) -> Callable[[Context], Any]:
    """Return your function; its file in the node's own folder is deleted."""
    if preload_first:
        preload(spec.plan.preload)
    if spec.fn_file is None:
        return pickle.loads(spec.fn)  # type: ignore[no-any-return]
    path = Path(spec.fn_file.path)
    with spec.fn_file.open() as file:
        fn: Callable[[Context], Any] = pickle.load(file)
    if path.parent == Path(spec.folder):
        path.unlink()
    return fn


def _call(fn: Callable[[Context], Any], context: Context) -> Any:
    """Call your function; if it forked, the child that returns as well ends here and reports nothing."""
    pid = os.getpid()
    try:
        value = fn(context)
    except BaseException as error:
        if os.getpid() != pid:
            if not isinstance(error, SystemExit):
                traceback.print_exc()
            os._exit(1)
        raise
    if os.getpid() != pid:
        os._exit(0)
    return value


def _take_rows(spec: NodeSpec, cluster: Cluster, task: TaskConnection, feed: socket.socket) -> "Feed | None":
    if not spec.data or not spec.me.trains:
        return None
    most_steps = task.agree_on_steps if spec.streams else None
    return receive_feed(feed, spec.data, cluster.shards, spec.me.rank, most_steps)


def _context(
    spec: NodeSpec,
    endpoints: list[Any],
    services: StrategyServices,
    task: TaskConnection,
    rows: "Feed | None",
    live: "LiveFeeds | None",
) -> Context:
    me, plan = spec.me, spec.plan
    addresses = [each["tf"] for each in endpoints]
    config = tf_config_of(me, plan.nodes, addresses)
    if len(plan.nodes) > 1:
        os.environ["TF_CONFIG"] = json.dumps(config)
    services.join(endpoints, config)
    work_dir = Path(spec.folder) / "work"
    mirror = Mirror(work_dir / "mirror", plan.paths.resolve)
    if plan.tensorboard and me.rank == 0:
        folder, host = plan.tensorboard
        port = held_port(plan.port_range, "TensorBoard") if plan.port_range else None
        start_tensorboard(
            follow_logs(folder, mirror),
            host,
            port,
            dict(os.environ),
            lambda url: task.send(TensorBoardStarted(url)),
        )
    return Context(
        rank=me.rank,
        role=me.role,
        index=me.index,
        workers=sum(node.trains for node in plan.nodes),
        ps=sum(node.role == "ps" for node in plan.nodes),
        attempt=plan.attempt,
        cluster_spec=config["cluster"],
        tf_config=config,
        devices=spec.devices,
        work_dir=work_dir,
        checkpoint_dir=plan.checkpoints.folder if plan.checkpoints else None,
        _checkpoints=Checkpoints(
            plan.checkpoints, work_dir, writes=me.rank == 0, follows=me.role == "evaluator"
        )
        if plan.checkpoints
        else None,
        _paths=plan.paths,
        _services=services,
        _mirror=mirror,
        _is_asynchronous=plan.is_asynchronous,
        _allows_tf_servers=plan.allows_tf_servers,
        _dispatchers=tuple(addresses[node.rank] for node in plan.nodes if node.role == "dispatcher"),
        _feed=rows,
        _live=live,
        _send=task.send,
        _over=task.over,
    )


def _returned(spec: NodeSpec, value: Any, seconds: float, rows: "Feed | None" = None) -> Returned | Raised:
    """Write the value into the node's folder, where the task opens it."""
    path = Path(spec.folder) / VALUE_FILE
    try:
        size, key = _write_value(spec, path, value)
    except Exception as error:  # noqa: BLE001 - pickling runs the value's own code
        if spec.me.rank == 0:
            return _unpicklable(value, error, time.monotonic() - seconds)
        size, key = _write_value(spec, path, None)
    return Returned(seconds, size, {} if rows is None else rows.progress(), key)


def _write_value(spec: NodeSpec, path: Path, value: Any) -> tuple[int, str]:
    """Return the size of the pickled value, and the key of its file where that is encrypted."""
    with path.open("wb") as file:
        if not spec.plan.encrypts_files:
            cloudpickle.dump(value, file)  # no copy of a large value in memory
            return file.tell(), ""
        sealed = SealedWriter(file.fileno())
        cloudpickle.dump(value, sealed)
        sealed.finish()
        return sealed.tell(), sealed.key.hex()


def _unpicklable(value: Any, error: Exception, started: float) -> Raised:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    problem = f"Your function returned a {kind}, which cannot be pickled: {type(error).__name__}: {error}"
    fix = "Return plain values, arrays or paths; save models and tensors to storage instead."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        problem = f"Your function returned a {kind} for which its node has no room on disk: {error}"
        fix = "Free space in spark.local.dir on the executors, or return less."
    return dataclasses.replace(_raised(error, problem, started), fix=fix)


def _raised(error: BaseException, problem: str, started: float) -> Raised:
    fix = error.fix if isinstance(error, EmberflowError) else ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = (
            f"The executors have no module {error.name!r}: install it there, or send your file with "
            f"spark.addArtifact({error.name.partition('.')[0] + '.py'!r}, pyfile=True)."
        )
    if len(problem) > TEXT_LIMIT:  # a message may hold a whole array; beginning and end show what it was
        half = TEXT_LIMIT // 2
        problem = (
            f"{problem[:half]}\n... {len(problem) - TEXT_LIMIT} characters left out ...\n{problem[-half:]}"
        )
    return Raised(problem, fix, type(error).__name__, time.monotonic() - started)


def _own_frames(error: BaseException) -> str:
    """Return the traceback from the first frame that is not Emberflow's."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename.startswith(PACKAGE):
        frames = frames.tb_next
    frames = frames or error.__traceback__
    if not isinstance(error, EmberflowError):
        return "".join(traceback.format_exception(type(error), error, frames))
    # Emberflow's errors are complete: frames below your call, and their causes, would not help you.
    yours = itertools.takewhile(
        lambda frame: not frame.filename.startswith(PACKAGE), traceback.extract_tb(frames)
    )
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(list(yours))]
    return "".join([*lines, f"{type(error).__module__}.{type(error).__qualname__}: {error.problem}\n"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
