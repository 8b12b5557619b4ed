"""The page of a real run on two executors, looked at while it goes on, and its report afterwards."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow._record.record_files import read_record
from emberflow.cli.runs import run_runs

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pyspark.sql import SparkSession

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = pytest.mark.usefixtures("browser", "nothing_left")  # the browser was there before
WITHIN = 60.0


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
    with ThreadPoolExecutor(1) as pool, ending(tmp_path):
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
        os.kill(int((tmp_path / "pid-1-0").read_text()), signal.SIGKILL)
        lost = page.locator("#node-table tr", has_text="worker 1")
        expect(lost).to_contain_text("SIGKILL")  # red for as long as the restart takes, and said afterwards
        expect(page.locator("#tiles")).to_contain_text("Restarts")
        for step in range(1, 4):
            (tmp_path / f"step-1-{step}").touch()
        result = run.result(WITHIN)
    expect(page.locator("#status")).to_have_attribute("data-state", "succeeded")
    assert "<script>" in page.locator("#log-lines").inner_text()
    assert "gotcha" not in page.title()
    live = seen(page)
    result.report(str(tmp_path / "report.html"))
    page.goto((tmp_path / "report.html").as_uri())
    assert seen(page) == live
    assert result.record is not None
    assert read_record(result.record).status == "succeeded"
    assert run_runs(str(tmp_path / "runs"), None, str(tmp_path / "recorded.html")) == 0
    page.goto((tmp_path / "recorded.html").as_uri())
    assert seen(page) == live


@contextmanager
def ending(folder: Path) -> Iterator[None]:
    """Let the run go on to its end when the block is left, also when that fails."""
    try:
        yield
    finally:
        (folder / "over").touch()


def seen(page: "Page") -> dict[str, Any]:
    """Return what a person sees of a run."""
    expect(page.locator("#status")).to_have_attribute("data-state", "succeeded")
    return {
        "title": page.title(),
        "nodes": page.locator("#node-table tbody td:nth-child(-n+3)").all_inner_texts(),
        "curves": [each.get_attribute("aria-label") for each in page.locator(".chart canvas").all()],
        "phases": page.locator("#timeline").inner_text(),
        "lines": page.locator("#log-lines .text").all_inner_texts(),
    }


def test_a_live_cluster_has_a_page_until_it_is_stopped(spark_cluster: "SparkSession", page: "Page") -> None:
    with ef.cluster(workers=2, spark=spark_cluster, verbose=False) as cluster:
        url = cluster.page()
        assert cluster.page() == url
        page.goto(url)
        expect(page.locator("#node-states")).to_contain_text("2 running")
    expect(page.locator("#status")).to_have_attribute("data-state", "succeeded")
