"""Every code block of every page runs, top to bottom, as a reader would type it.

Python blocks of a page share one namespace, which tests/docs/preambles.py prepares; command lines run in a folder of
the page. A block that cannot run says so by a comment before it, ``<!-- not run: reason -->``, and is skipped.
"""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.commands import check, commands_in
from tests.docs.pages import PAGES, ROOT, Block, all_blocks, blocks_of
from tests.docs.preambles import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANGUAGES = {"python", "console", "bash", "text", "scala", "java", "yaml"}
# Where a reader has storage that all hosts see, the test has a folder.
STORAGE = re.compile(r"(?<![\w/.])(?:hdfs:///|s3://bucket/|/shared/|/tmp/|/models/)")
LARGE = {  # pages whose programs need more than two slots, or GPUs
    "docs/asynchronous.md": pytest.mark.full,
    "docs/migrate/tensorspark.md": pytest.mark.full,
    "docs/roles-gpus-restarts.md": pytest.mark.full,  # test_restarts.py runs its programs
    "docs/run-parallel.md": (),
}
LONG = {  # several runs or commands; other tests show the same in make test
    "docs/commands.md",
    "docs/data-parallel.md",
    "docs/estimator.md",  # README fits by an estimator too
    "docs/feeding.md",
    "docs/function-estimator.md",
    "docs/live.md",
    "docs/migrate/hops.md",
    "docs/migrate/spark-tensorflow-distributor.md",
    "docs/migrate/tensorflowonspark.md",
    "docs/predict.md",
    "docs/run.md",  # README runs a function too
    "docs/security.md",
    "docs/streaming.md",
}
FEWER_ROWS = {
    "spark.range(10_000)": "spark.range(1_000)"
}  # test_install.py runs README's first block as it stands
OF_THE_SITE = ("docs/index.md", "docs/reference/")  # read as a site; test_site.py checks its navigation
WITH_CODE = [page for page in PAGES if any(block.language != "text" for block in blocks_of(page))]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.full if page in LONG else ())
        for page in WITH_CODE
        if page not in LARGE
    ],
)
@pytest.mark.usefixtures("nothing_left")
def test_the_blocks_of_a_page_run(
    page: str, spark_local: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, spark_local, tmp_path)


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks) for page, marks in LARGE.items()])
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.timeout(400)
def test_the_blocks_of_a_page_run_on_six_slots(
    page: str, spark_gpus: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, spark_gpus, tmp_path)


def run_page(page: str, spark: "SparkSession", folder: Path) -> None:
    """Run all blocks of a page in order, but for those that say why they cannot run."""
    names = prepare(page, spark, folder)
    for block in blocks_of(page):
        if not block.reason:
            run(block, names, folder)


def run(block: Block, names: dict[str, Any], folder: Path) -> None:
    """Run one block where its page stands."""
    text = STORAGE.sub(f"{folder}/", block.text)
    for rows, fewer in FEWER_ROWS.items():
        text = text.replace(rows, fewer)
    if block.language == "python":
        if file := re.match(r"# (\w+\.py)\n", text):
            (folder / file[1]).write_text(text)
        # Line numbers of a traceback are those of the page.
        exec(compile("\n" * (block.line - 1) + text, block.page, "exec"), names)
    elif block.language == "yaml" and (file := re.match(r"# (\w+\.yaml)\n", text)):
        (folder / file[1]).write_text(text)
    elif block.language in {"console", "bash"}:
        for command, shown in commands_in(Block(block.page, block.line, block.language, text, "")):
            try:
                check(command, shown)
            except AssertionError as error:
                error.add_note(f"{block}: {command}")
                raise


@pytest.mark.parametrize("block", [block for block in all_blocks() if block.reason], ids=str)
def test_a_block_that_cannot_run(block: Block) -> None:
    pytest.skip(f"{block}: {block.reason}")


def test_every_block_says_what_it_is() -> None:
    unknown = [f"{block}: {block.language!r}" for block in all_blocks() if block.language not in LANGUAGES]
    assert unknown == [], f"each block begins with one of {sorted(LANGUAGES)}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_whose_code_serves_a_page_says_what_to_install(page: str) -> None:
    uses = [block for block in blocks_of(page) if re.search(r"page=(True|\d)|emberflow ui ", block.text)]
    text = (ROOT / page).read_text()
    assert not uses or re.search(r"emberflow\[[\w,]*\bpage\b", text), f"{uses[0]} needs the extra `page`"
    given = [block.text for block in blocks_of(page) if "pip install" in block.text]
    assert not (uses and given) or any(re.search(r"\bpage\b", each) for each in given), given


def test_every_link_between_pages_leads_somewhere() -> None:
    assert [broken for page in PAGES for broken in broken_links(ROOT / page)] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One thing\n[a](#one-thing) [b](#another) [c](gone.md) [d](page.md#one-thing) ![e](gone.png)\n"
    )
    assert broken_links(page) == [f"{page}: #another", f"{page}: gone.md#", f"{page}: gone.png#"]


def broken_links(page: Path) -> list[str]:
    """Return the links and pictures of a page that lead nowhere."""
    broken = []
    for link, place in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        target = page.parent / link if link else page
        if not target.exists() or (place and place not in anchors_of(target)):
            broken.append(f"{page}: {link}#{place}")
    return broken


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "1 / 0"),
        ("console", "$ emberflow no-such-command"),
        ("bash", "emberflow show /tmp/nothing"),
    ],
)
def test_a_block_that_fails_fails_its_page(language: str, text: str, tmp_path: Path) -> None:
    with pytest.raises((ZeroDivisionError, AssertionError)):
        run(Block("page.md", 1, language, text + "\n", ""), {}, tmp_path)


def test_every_page_of_the_site_is_among_the_pages() -> None:
    spec = spec_from_file_location("site_pages", ROOT / "scripts/site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    site_pages = module_from_spec(spec)
    spec.loader.exec_module(site_pages)
    assert set(site_pages.PAGES) - set(PAGES) == set()


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made for Markdown on the web."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_index_of_docs_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    read_here = [page for page in PAGES if page.startswith("docs/") and not page.startswith(OF_THE_SITE)]
    missing = [page for page in read_here if f"({page.removeprefix('docs/')})" not in index]
    assert missing == ["docs/README.md"]
