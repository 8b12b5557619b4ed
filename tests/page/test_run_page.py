"""The page of a real run on two executors, looked at while it goes on, and its report afterwards."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow._record.record_files import read_record
from emberflow.cli.runs import run_runs
from emberflow.errors import NodeFailedError, NodeLostError
from emberflow.page.server import PageServer
from emberflow.page.sources import RecordedRuns

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page
    from pyspark.sql import SparkSession

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = pytest.mark.usefixtures("browser", "nothing_left")  # the browser was there before
WITHIN = 60.0
RED = ("rgb(253, 234, 234)", "rgb(201, 42, 42)")  # of the row, of the dot


def training(folder: Path) -> Any:
    """Return a function whose steps wait for files, so that a test decides when the run goes on."""

    def train(ctx: Any) -> str:
        print(f"<script>document.title = 'gotcha'</script> from {ctx.rank}", flush=True)
        (folder / f"pid-{ctx.rank}-{ctx.attempt}").write_text(str(os.getpid()))
        for step in range(1, 4):
            while not any((folder / name).exists() for name in (f"step-{ctx.attempt}-{step}", "over")):
                ctx.wait_until_over(0.05)
            if ctx.rank == 0:
                ctx.report(step=step, loss=1.0 / step, val_loss=1.1 / step)
        return "done"

    return train


@pytest.fixture
def address(capfd: pytest.CaptureFixture[str]) -> Any:
    """Return a function that waits until the run has printed the address of its page."""

    def wait(run: "Future[Any]", page: "Page") -> str:
        shown = ""
        for _ in range(int(WITHIN * 10)):
            shown += capfd.readouterr().err
            if found := re.search(r"Run page: (http://\S+)", shown):
                return found[1]
            if run.done():
                run.result()
            page.wait_for_timeout(100)
        raise TimeoutError("the run has not printed an address")

    return wait


def test_a_live_run_is_seen_as_it_happens_and_the_report_shows_the_same(
    spark_cluster: "SparkSession", page: "Page", tmp_path: Path, address: Any
) -> None:
    expect.set_options(timeout=WITHIN * 1000)
    options: dict[str, Any] = {"workers": 2, "spark": spark_cluster, "verbose": False, "max_restarts": 1}
    with ThreadPoolExecutor(2) as pool, ending(tmp_path):
        run = pool.submit(ef.run, training(tmp_path), page=True, record=str(tmp_path / "runs"), **options)
        page.goto(address(run, page))
        expect(page.locator("#node-states")).to_contain_text("2 running")
        (tmp_path / "step-0-1").touch()
        expect(page.locator(".chart canvas").first).to_have_attribute(
            "aria-label", re.compile("training 1, validation 1.1")
        )
        (tmp_path / "step-0-2").touch()
        expect(page.locator(".chart canvas").first).to_have_attribute(
            "aria-label", re.compile("training 0.5")
        )
        slot = pool.submit(take_a_slot, spark_cluster, tmp_path)  # which the restart waits for
        until(lambda: len(spark_cluster.sparkContext.statusTracker().getActiveJobsIds()) == 2, page)
        os.kill(int((tmp_path / "pid-1-0").read_text()), signal.SIGKILL)
        lost = page.locator("#node-table tr", has_text="worker 1")
        expect(lost).to_have_class("bad")
        expect(lost).to_contain_text("SIGKILL")
        expect(page.locator("#tiles")).to_contain_text("Restarts")
        assert is_red(lost)
        (tmp_path / "slot-free").touch()
        slot.result(WITHIN)
        expect(lost).to_have_class("")
        expect(lost).to_contain_text("lost in attempt 1")
        for step in range(1, 4):
            (tmp_path / f"step-1-{step}").touch()
        result = run.result(WITHIN)
    expect(page.locator("#status")).to_have_attribute("data-state", "succeeded")
    killed, restarted = marks(page)
    assert re.match("worker 1 lost: .*SIGKILL", killed)
    assert re.match("Worker 1 .* was lost: .*SIGKILL", restarted)  # the reason of the restart
    expect(page.locator("#log-lines")).to_contain_text("<script>")
    live = seen(page, "succeeded")
    result.report(str(tmp_path / "report.html"))
    page.goto((tmp_path / "report.html").as_uri())
    assert seen(page, "succeeded") == live
    assert marks(page) == [killed, restarted]
    assert result.record is not None
    assert read_record(result.record).status == "succeeded"
    assert run_runs(str(tmp_path / "runs"), None, str(tmp_path / "recorded.html")) == 0
    page.goto((tmp_path / "recorded.html").as_uri())
    assert seen(page, "succeeded") == live
    assert marks(page) == [killed, restarted]


def test_a_killed_worker_stays_red_with_its_error_where_nothing_restarts(
    spark_cluster: "SparkSession", page: "Page", tmp_path: Path, address: Any
) -> None:
    expect.set_options(timeout=WITHIN * 1000)
    options: dict[str, Any] = {"workers": 2, "spark": spark_cluster, "verbose": False}
    with ThreadPoolExecutor(1) as pool, ending(tmp_path):
        run = pool.submit(ef.run, training(tmp_path), page=True, record=str(tmp_path / "runs"), **options)
        page.goto(address(run, page))
        expect(page.locator("#node-states")).to_contain_text("2 running")
        (tmp_path / "step-0-1").touch()
        expect(page.locator(".chart canvas").first).to_have_attribute("aria-label", re.compile("training 1"))
        os.kill(int((tmp_path / "pid-1-0").read_text()), signal.SIGKILL)
        with pytest.raises(NodeLostError, match="SIGKILL"):
            run.result(WITHIN)
    expect(page.locator("#failure")).to_contain_text("SIGKILL")
    lost = page.locator("#node-table tr", has_text="worker 1")
    assert is_red(lost)
    assert "SIGKILL" in lost.inner_text()
    live = seen(page, "failed")
    with recorded_page(tmp_path / "runs") as url:
        page.goto(url)
        expect(lost).to_have_class("bad")
        assert seen(page, "failed") == live
    assert run_runs(str(tmp_path / "runs"), None, str(tmp_path / "recorded.html")) == 0
    page.goto((tmp_path / "recorded.html").as_uri())
    assert is_red(lost)
    assert seen(page, "failed") == live


def test_parallel_tasks_are_seen_one_by_one_as_they_begin_and_end(
    spark_cluster: "SparkSession", page: "Page", tmp_path: Path, address: Any
) -> None:
    def search(ctx: Any) -> int:
        print(f"<b>trial</b> {ctx.index}", flush=True)
        ctx.report(step=1, loss=1.0 / (1 + ctx.index))
        (tmp_path / f"begun-{ctx.index}").touch()
        while not any((tmp_path / name).exists() for name in (f"end-{ctx.index}", "over")):
            ctx.wait_until_over(0.05)
        if ctx.index == 1:
            raise ValueError("trial 1 diverged")
        return int(ctx.index)

    expect.set_options(timeout=WITHIN * 1000)
    task = [page.locator("#node-table tbody tr", has_text=f"task {number}") for number in range(3)]
    with ThreadPoolExecutor(1) as pool, ending(tmp_path):
        run = pool.submit(
            ef.run_parallel, search, tasks=3, spark=spark_cluster, page=True, record=str(tmp_path / "runs")
        )
        page.goto(address(run, page))
        expect(page.locator("#node-states")).to_contain_text("2 running")  # there are two slots
        expect(task[2]).to_contain_text("waiting")
        (tmp_path / "end-1").touch()
        expect(task[1]).to_have_class("bad")
        expect(task[1]).to_contain_text("ValueError: trial 1 diverged")
        expect(task[2]).to_contain_text("running")
        expect(page.locator("#status")).to_have_attribute("data-state", "running")
        expect(page.locator("#log-lines")).to_contain_text("<b>trial</b> 2")
        expect(page.locator("#start")).to_be_hidden()
        expect(page.locator(".chart canvas")).to_have_count(1)
        (tmp_path / "end-0").touch()
        expect(task[0]).to_contain_text("returned")
        (tmp_path / "end-2").touch()
        with pytest.raises(NodeFailedError, match="trial 1 diverged"):
            run.result(WITHIN)
    expect(page.locator("#failure")).to_contain_text("trial 1 diverged")
    live = seen(page, "failed")
    assert run_runs(str(tmp_path / "runs"), None, str(tmp_path / "recorded.html")) == 0
    page.goto((tmp_path / "recorded.html").as_uri())
    assert seen(page, "failed") == live


def take_a_slot(spark: "SparkSession", folder: Path) -> None:
    """Run a Spark job that holds the next slot that becomes free, until the test lets go."""

    def wait(_: Any) -> None:
        while not any((folder / name).exists() for name in ("slot-free", "over")):
            threading.Event().wait(0.05)

    spark.sparkContext.parallelize([0], 1).foreach(wait)


@contextmanager
def ending(folder: Path) -> Iterator[None]:
    """Let the run go on to its end when the block is left, also when that fails."""
    try:
        yield
    finally:
        (folder / "over").touch()


@contextmanager
def recorded_page(folder: Path) -> Iterator[str]:
    """Serve the page of recorded runs, as `emberflow ui` does."""
    with closing(RecordedRuns(str(folder))) as runs, PageServer(runs) as server:
        yield server.url


def until(is_so: Callable[[], bool], page: "Page") -> None:
    for _ in range(int(WITHIN * 10)):
        if is_so():
            return
        page.wait_for_timeout(100)
    raise TimeoutError(is_so)


def is_red(row: "Locator") -> bool:
    """Tell whether a node's row and the dot of its state have the colours of a failure."""
    colour = "each => getComputedStyle(each).backgroundColor"
    return (row.evaluate(colour), row.locator(".dot").evaluate(colour)) == RED


def marks(page: "Page") -> list[str]:
    """Return what the marks on the first curve say to a person who points at them, from left to right."""
    page.get_by_role("button", name="Time").click()  # each has a place of its own there
    drawn(page)
    places = page.evaluate(
        """() => {
            const canvas = document.querySelector('.chart canvas');
            const row = canvas.getContext('2d').getImageData(0, 8 * devicePixelRatio, canvas.width, 1).data;
            const dark = [...Array(canvas.width).keys()].filter((x) => row[4 * x + 3] > 200);
            return dark.filter((x) => !dark.includes(x - 1)).map((x) => x / devicePixelRatio);
        }"""
    )
    found: dict[str, None] = {}
    canvas = page.locator(".chart canvas").first
    for x in places:  # the marks, and their labels beside them
        canvas.hover(position={"x": x + 1, "y": 60})
        drawn(page)
        found |= dict.fromkeys(page.locator(".chart").first.locator(".tip em").all_inner_texts())
    return list(found)


def drawn(page: "Page") -> None:
    """Wait until the page has drawn what was asked of it before."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def seen(page: "Page", status: str) -> dict[str, Any]:
    """Return what a person sees of a run."""
    expect(page.locator("#status")).to_have_attribute("data-state", status)
    assert "gotcha" not in page.title()
    return {
        "title": page.title(),
        "nodes": page.locator("#node-table tbody td:nth-child(-n+3)").all_inner_texts(),
        "red": page.locator("#node-table tbody tr.bad td:first-child").all_inner_texts(),
        "curves": [each.get_attribute("aria-label") for each in page.locator(".chart canvas").all()],
        "phases": page.locator("#timeline").inner_text(),
        "tiles": page.locator("#tiles b").all_inner_texts(),
        "failure": page.locator("#failure h2").all_inner_texts(),
        "lines": page.locator("#log-lines .text").all_inner_texts(),
    }


def test_a_live_cluster_has_a_page_until_it_is_stopped(spark_cluster: "SparkSession", page: "Page") -> None:
    with ef.cluster(workers=2, spark=spark_cluster, verbose=False) as cluster:
        url = cluster.page()
        assert cluster.page() == url
        page.goto(url)
        expect(page.locator("#node-states")).to_contain_text("2 running")
    expect(page.locator("#status")).to_have_attribute("data-state", "succeeded")
