"""The page from its server: pushed, guarded by its token, and never in anybody's way."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from emberflow._plan import deadlines
from emberflow._record.record_writer import RecordWriter
from emberflow.errors import ConfigError, StorageError
from emberflow.page.server import PageServer
from emberflow.page.sources import RecordedRuns
from tests.page.served import served, tell
from tests.unit.runs_simulated import failed, planned, restarted, start, started, succeeded, training

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
WITHIN = 20.0


def answer(url: str) -> tuple[int, str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=WITHIN) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_nodes_appear_the_curve_grows_a_worker_turns_red_and_the_restart_is_marked(page: "Page") -> None:
    with served([started(), planned(2)]) as (recorder, server):
        page.goto(server.url)
        page.wait_for_selector("#node-table tbody tr:nth-child(2)")
        assert page.locator("#status").get_attribute("data-state") == "starting"
        events = list(restarted())
        lost = next(at for at, event in enumerate(events) if getattr(event, "ending", "") == "lost")
        tell(recorder, events[2:300])
        expect(page.locator(".chart")).to_have_count(3)
        before = page.locator("#tiles").inner_text()
        tell(recorder, events[300:lost])
        expect(page.locator("#tiles")).not_to_have_text(before, use_inner_text=True)
        tell(recorder, events[lost : lost + 1])
        page.wait_for_selector("#node-table tr.bad")
        assert "SIGKILL" in page.locator("#node-table tr.bad").inner_text()
        tell(recorder, events[lost + 1 :])
        expect(page.locator("#tiles")).to_contain_text("Restarts")
        assert page.locator("#node-table tr.bad").count() == 0
        lost = page.locator("#node-table tr", has_text="worker 1")
        assert "lost in attempt 1: its process was killed by SIGKILL" in lost.inner_text()
    expect(page.locator("#connection")).to_contain_text("the last it told")


def test_the_last_news_reach_the_browser_before_the_page_is_closed(page: "Page") -> None:
    events = list(failed())
    with served(events[:-1]) as (recorder, server):
        page.goto(server.url)
        page.wait_for_selector(".chart")
        tell(recorder, events[-1:])
    page.wait_for_selector("#failure:not([hidden])")
    assert "What to do" in page.locator("#failure").inner_text()


@pytest.mark.parametrize("path", ["/", "/events", "/?token=", "/?token=wrong", "/events?token=wrong"])
def test_without_the_token_nothing_is_shown(path: str) -> None:
    with served(succeeded(steps=3)) as (_, server):
        base = server.url.partition("/?")[0]
        code, text, _ = answer(base + path)
        assert code == 401
        assert "train" not in text
        assert "loss" not in text


def test_the_page_is_read_only_on_loopback_and_keeps_its_address_to_itself() -> None:
    with served(succeeded(steps=3)) as (_, server):
        assert server.url.startswith("http://127.0.0.1:")
        code, text, headers = answer(server.url)
        assert code == 200
        assert "Learning curves" in text
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "script-src 'sha256-" in headers["Content-Security-Policy"]
        request = urllib.request.Request(server.url, data=b"x", method="POST")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=WITHIN)
        assert caught.value.code == 405
        assert answer(server.url.replace("/?", "/secrets?"))[0] == 404


def test_a_port_that_is_taken_is_a_clear_answer() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"free port.*{port}") as caught, served([]) as (_, server):
            PageServer(server._runs, port)
    assert "any free one" in caught.value.fix


def test_a_page_leaves_neither_a_thread_nor_a_port() -> None:
    others = set(threading.enumerate())  # of earlier tests in this process
    with served(succeeded(steps=3)) as (_, server):
        port = int(server.url.split(":")[2].split("/")[0])
        assert set(threading.enumerate()) - others
    assert [each.name for each in threading.enumerate() if each not in others] == []
    with socket.socket() as again, pytest.raises(ConnectionRefusedError):
        again.connect(("127.0.0.1", port))


def test_a_browser_that_stalls_holds_nobody_up_and_gets_one_change_for_many() -> None:
    with served([started(), planned(2), *start(2)]) as (recorder, server):
        port, token = int(server.url.split(":")[2].split("/")[0]), server.url.partition("token=")[2]
        with socket.create_connection(("127.0.0.1", port), timeout=WITHIN) as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.sendall(f"GET /events?token={token} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert b"200 OK" in stalled.recv(1024)
            began = time.monotonic()
            tell(recorder, training(2, range(5000), t=4.2))
            assert time.monotonic() - began < 5
            began = time.monotonic()
            server.close()
            assert time.monotonic() - began < deadlines.PAGE_END_TIMEOUT + 3


def test_recorded_runs_are_listed_shown_and_drawn_together(page: "Page", tmp_path: Path) -> None:
    for at, (run_id, events) in enumerate([("0a1b2c3d", succeeded()), ("bad0bad0", failed())]):
        writer = RecordWriter(str(tmp_path / f"2026010{at + 1}-000000-{run_id}"))
        for event in events:
            writer.put(event)
        writer.close()
    runs = RecordedRuns(str(tmp_path))
    try:
        with PageServer(runs) as server:
            page.goto(server.url)
            page.wait_for_selector("#failure:not([hidden])")
            assert page.locator("#runs-list li").count() == 2
            page.locator("#runs-list li", has_text="0a1b2c3d").get_by_role("button").click()
            expect(page.locator("#status")).to_have_attribute("data-state", "succeeded")
            assert page.locator("#failure").is_hidden()
            page.locator("#runs-list li", has_text="bad0bad0").get_by_role("checkbox").check()
            expect(page.locator("#legend li")).to_have_count(2)
            late = RecordWriter(str(tmp_path / "20260103-000000-5e5e5e5e"))
            for event in islice(restarted(), 100):
                late.put(event)
            expect(page.locator("#runs-list li")).to_have_count(3)
            late.close()
    finally:
        runs.close()


def test_a_folder_without_runs_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such folder, or an empty one"):
        RecordedRuns(str(tmp_path / "nothing"))


@pytest.mark.alone
def test_a_thousand_nodes_are_painted_within_a_second_and_updated_within_a_tenth(page: "Page") -> None:
    nodes = 1000
    with served([started(), planned(nodes), *start(nodes)]) as (recorder, server):
        page.goto(server.url)
        page.wait_for_selector("#node-table tbody tr")
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        filled = page.evaluate("Math.max(...emberflow.frames)")
        page.evaluate("emberflow.frames.length = 0")
        seconds_of_tasks = tasks_of(page)
        busy = seconds_of_tasks()
        driver, began = psutil.Process(), time.monotonic()
        before = driver.cpu_times()
        step = 0
        while time.monotonic() - began < 10:  # as many messages per second as a thousand nodes send
            tell(recorder, training(100, range(step, step + 1), t=4.2 + step, every=1))
            step += 1
            page.wait_for_timeout(1000)
        after = driver.cpu_times()
        share = (after.user + after.system - before.user - before.system) / (time.monotonic() - began)
        frames = page.evaluate("emberflow.frames")
        update = (
            1000 * (seconds_of_tasks() - busy) / step
        )  # scripts, styles, layout and paint, animations too
    figures = {"paint_ms": painted, "filled_ms": filled, "worst_ms": max(frames), "update_ms": update}
    print(json.dumps(figures | {"driver_cpu": share}))
    assert painted < 1000
    assert filled < 1000
    assert max(frames) < 100
    assert update < 100
    assert share < 0.05


def tasks_of(page: "Page") -> Callable[[], float]:
    """Return a function that tells how long the page has kept the browser's main thread busy."""
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable")

    def seconds() -> float:
        figures = browser.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in figures if each["name"] == "TaskDuration")

    return seconds
