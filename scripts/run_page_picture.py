"""Take the pictures of a run's page for README.md and docs/: run_page_picture.py [FOLDER].

Two executors of a Spark on this machine learn to read digits, one of them is killed on the way, and a real browser
looks at the page while they train. Needs a Chromium: scripts/with-spark python scripts/run_page_picture.py
"""

import functools
import io
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import keras

import emberflow as ef
from emberflow.cli.demo_digits import BATCH_ROWS, SEED, build_model, frame_of, load_digits
from emberflow.local.cluster import local_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

ASSETS = pathlib.Path(__file__).resolve().parent.parent / "docs/assets"
PICTURES = {"light": "run-page.png", "dark": "run-page-dark.png"}
WORKERS = 2
EPOCHS = 16
LOST_AFTER = 7  # epochs: a checkpoint is older than that, and the curve shows both sides of it
SHOWN_FROM = 80  # percent of the training: the pictures are taken while it goes on
COLOURS = 255  # enough for a page, and a fifth of the bytes
DEADLINE = 300.0
SIZE = {"width": 1280, "height": 1400}
MARGIN = 16  # pixels below the last card


class LostOnce(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Has the kernel kill the second worker in the middle of the first attempt, as a full host would."""

    def __init__(self, mark: pathlib.Path) -> None:
        super().__init__()
        self.mark = mark

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras passes it
        """Kill the worker after one epoch, if it was not killed before."""
        role = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
        if role == "worker" and epoch + 1 == LOST_AFTER and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def train(spark: Any, folder: pathlib.Path) -> None:
    """Train as the demo does, with a page, checkpoints and one restart."""
    digits = load_digits()
    steps = EPOCHS * (len(digits.labels) // BATCH_ROWS + 1)
    estimator = ef.KerasEstimator(
        model=functools.partial(build_model, steps=steps),
        callbacks=[LostOnce(folder / "lost")],
        featuresCol="image",
        labelCol="label",
        validationIndicatorCol="is_test",
        batchSize=BATCH_ROWS // WORKERS,
        epochs=EPOCHS,
        numWorkers=WORKERS,
        seed=SEED,
        checkpointDir=str(folder / "checkpoints"),
        checkpointSteps=50,
        maxRestarts=1,
        page=True,
    )
    estimator.fit(frame_of(spark, digits))


def take(url: str, folder: pathlib.Path, training: "Future[None]") -> None:
    """Write the pictures, light and dark, when most of the training is done."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=program, args=["--no-sandbox"])
        pages = {}
        for scheme in ("light", "dark"):
            pages[scheme] = browser.new_page(viewport=SIZE, device_scale_factor=2, color_scheme=scheme)
            pages[scheme].goto(url)
        for page in pages.values():
            wait_for_most(page, training)
        for scheme, page in pages.items():
            nodes = page.locator("#nodes").bounding_box()
            assert nodes is not None  # noqa: S101 - for the type checker: it is in sight
            shown = {"x": 0, "y": 0, "width": SIZE["width"], "height": nodes["y"] + nodes["height"] + MARGIN}
            picture = Image.open(io.BytesIO(page.screenshot(clip=shown))).convert("RGB")
            path = folder / PICTURES[scheme]
            picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
            sys.stdout.write(f"{path}: {path.stat().st_size / 1000:.0f} kB\n")
        browser.close()


def wait_for_most(page: "Page", training: "Future[None]") -> None:
    """Wait until the page shows that most is done; an error of the training comes before."""
    shown = f"parseInt(document.querySelector('.tile b')?.textContent) >= {SHOWN_FROM}"
    for _ in range(int(DEADLINE)):
        if training.done():
            training.result()
        if page.evaluate(f"{shown} && document.querySelector('.tile').textContent.includes('%')"):
            return
        page.wait_for_timeout(1000)
    raise TimeoutError(f"the training has not come to {SHOWN_FROM} % within {DEADLINE:.0f} s")


def main() -> None:
    """Train in a thread, and take the pictures meanwhile."""
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with (
        tempfile.TemporaryDirectory() as work,
        local_cluster(workers=WORKERS, cores=1) as cluster,
        cluster.session("digits", {"spark.ui.showConsoleProgress": "false"}) as spark,
        ThreadPoolExecutor(1) as pool,
    ):
        address: Future[str] = Future()
        sys.stderr = AddressSeen(sys.stderr, address)
        training = pool.submit(train, spark, pathlib.Path(work))
        take(address.result(DEADLINE), folder, training)
        training.result(DEADLINE)


class AddressSeen(io.TextIOBase):
    """Standard error, in which the address of the page is printed."""

    def __init__(self, out: Any, address: "Future[str]") -> None:
        self.out, self.address = out, address

    def write(self, text: str) -> int:
        """Print it, and take the address out of it."""
        found = re.search(r"Run page: (\S+)", text)
        if found and not self.address.done():
            self.address.set_result(found[1])
        return int(self.out.write(text))

    def flush(self) -> None:
        """Print what is held back."""
        self.out.flush()


if __name__ == "__main__":
    main()
