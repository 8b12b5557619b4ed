"""What does one driver spend on 1,000 nodes while they train?

Everything of the driver is real: hub, attempt, recorder, the record on local disk, the page and its server. The
nodes are sealed connections of another process; each sends what a node sends while it trains, at its own interval:
what it uses, the rows that it took, and a line of output; the chief instead a metric twice per second. (Heartbeats
stay between a node and its task, and the kernel's keep-alive costs the driver nothing.) A client in a third process
reads the page's events. Measured is the CPU time of the driver's process from the first round to the last, once with
record and page, once with neither. ``python -m benchmarks.thousand_reports [SECONDS [NODES]]``
"""

import contextlib
import multiprocessing
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.measure import print_result
from benchmarks.thousand_nodes import (
    KEY,
    THREADS,
    WITHIN,
    EndedJob,
    Traffic,
    allow_open_files,
    end,
    facts_of,
    joined,
    plan_of,
    start_up,
)
from emberflow._driver.attempt import Attempt
from emberflow._driver.console import Console
from emberflow._driver.hub import Hub
from emberflow._driver.recording import record_plan, record_result, start_recording
from emberflow._plan import deadlines
from emberflow._plan.roles import Node
from emberflow._plan.telling import usage_interval
from emberflow._protocol.driver_messages import LogLines, NodeUsage, RowsTaken
from emberflow._protocol.frames import Channel
from emberflow._protocol.outcome import MetricReport
from emberflow._record.events import AttemptStarted
from emberflow._record.recorder import Recorder
from emberflow.page.server import PageServer
from emberflow.page.sources import LiveRuns

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SECONDS = 40.0
NODES = 1000


def report(channels: list[tuple[Node, Channel]], interval: float, seconds: float) -> None:
    """Send what these nodes send, spread evenly over each interval."""
    began, pause = time.monotonic(), threading.Event()
    for turn in range(int(seconds / interval)):
        for place, (node, channel) in enumerate(channels):
            due = began + interval * (turn + place / len(channels))
            pause.wait(max(due - time.monotonic(), 0.0))
            rows = {"rows": 1000 * turn, "rows_per_second": 812.5, "waiting_for": "neither"}
            channel.send(NodeUsage(1_612_000_000 + turn, 1.87, ()))
            channel.send(RowsTaken({"train": rows}))
            channel.send(LogLines(f"step {turn} of node {node.rank}: loss 0.1234"))


def report_metrics(chief: Channel, seconds: float) -> None:
    """Send the metrics of the chief."""
    began, pause = time.monotonic(), threading.Event()
    step = 0
    while (left := began + seconds - time.monotonic()) > 0:
        values = {
            "loss": 1.0 / (step + 1),
            "accuracy": 0.9,
            "epoch": 1.0,
            "progress": 0.5,
            "rows_per_second": 8e5,
        }
        chief.send(MetricReport(step=step, values=values, seconds=seconds - left))
        step += 1
        pause.wait(min(deadlines.PROGRESS_INTERVAL, left))


def _be_nodes(address: tuple[str, int], nodes: tuple[Node, ...], seconds: float, told: "Connection") -> None:
    """Be all nodes, from their dialling to their end."""
    allow_open_files(len(nodes) + 100)
    interval = usage_interval(len(nodes))
    parts = [list(nodes[i::THREADS]) for i in range(THREADS)]
    with contextlib.ExitStack() as held, ThreadPoolExecutor(THREADS + 1) as pool:
        crews = list(pool.map(lambda part: joined(address, part, held), parts))
        for done in [
            pool.submit(start_up, crew, facts_of([node for node, _ in crew], 0), Traffic()) for crew in crews
        ]:
            done.result()
        told.send("begin")
        _, chief = crews[0][0]
        others = [crews[0][1:], *crews[1:]]  # one thread sends on each connection
        working = [pool.submit(report, crew, interval, seconds) for crew in others]
        report_metrics(chief, seconds)
        for done in working:
            done.result()
        told.send("end")
        for done in [pool.submit(end, crew) for crew in crews]:
            done.result()


def _read(url: str, told: "Connection") -> None:
    """Be a browser that reads all it is told; say how many bytes that were."""
    count = 0
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=WITHIN) as answer:
        while piece := answer.read1(1 << 16):
            count += len(piece)
    told.send(count)


def _measure(heard: "Connection", found: dict[str, float]) -> None:
    """Note what this process uses between the two words of the nodes."""
    heard.recv()
    began, cpu = time.monotonic(), time.process_time()
    heard.recv()
    found["seconds"] = time.monotonic() - began
    found["cpu_seconds"] = time.process_time() - cpu


def run_reports(count: int, seconds: float, *, is_watched: bool) -> dict[str, Any]:
    """Run an attempt whose nodes report for so long; return what the driver used.

    Args:
        count: How many nodes.
        seconds: How long.
        is_watched: Whether there is a record on disk, and a page that a client reads.
    """
    allow_open_files(count + 500)
    plan, recorder, found = plan_of(count), Recorder(), dict[str, float]()
    spawning = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory())
        record = folder if is_watched else None
        start_recording(recorder, None, plan.run_id, "run", run_reports, record=record, options={})
        record_plan(recorder, plan, plan.nodes)
        recorder.emit(AttemptStarted, attempt=0)
        hub = held.enter_context(contextlib.closing(Hub("127.0.0.1", KEY, count)))
        job = EndedJob(hub.events)
        heard, told = spawning.Pipe(duplex=False)
        nodes = spawning.Process(target=_be_nodes, args=(("127.0.0.1", hub.port), plan.nodes, seconds, told))
        read_bytes, read_told = spawning.Pipe(duplex=False)
        if is_watched:
            server = held.enter_context(PageServer(LiveRuns(recorder)))
            spawning.Process(target=_read, args=(server.url.replace("/?", "/events?"), read_told)).start()
        nodes.start()
        measuring = threading.Thread(target=_measure, args=(heard, found), daemon=True)
        measuring.start()
        threading.Thread(target=lambda: (nodes.join(), job.end()), daemon=True).start()
        Attempt(plan, hub, job, Console(plan.nodes, verbose=False), recorder=recorder).run()  # type: ignore[arg-type]
        measuring.join(WITHIN)
        record_result(recorder, None)
    figures = {
        "seconds": round(found["seconds"], 1),
        "driver_cpu_seconds": round(found["cpu_seconds"], 2),
        "share": round(found["cpu_seconds"] / found["seconds"], 4),
        "events": recorder.state.version,
    }
    return figures | ({"page_bytes": read_bytes.recv()} if is_watched else {})


def main() -> None:
    """Measure both, print the line."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    count = int(sys.argv[2]) if len(sys.argv) > 2 else NODES
    figures = {
        "nodes": count,
        "watched": run_reports(count, seconds, is_watched=True),
        "neither": run_reports(count, seconds, is_watched=False),
    }
    print_result("thousand_reports", figures)


if __name__ == "__main__":
    main()
