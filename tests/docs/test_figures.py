"""Figures and versions that pages quote are those of the one place that keeps them."""

import re
import tomllib

import pytest
from tests.docs.pages import PAGES, ROOT

from emberflow.cli.doctor_checks import NEWEST_PYTHON, VERSIONS

KEPT = "benchmarks/README.md"
FIGURE = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])|\b\d+(?= times)")


@pytest.mark.parametrize("page", [page for page in PAGES if page != KEPT])
def test_a_figure_beside_a_link_to_the_benchmarks_is_in_their_table(page: str) -> None:
    kept = (ROOT / KEPT).read_text()
    paragraphs = re.split(r"\n\s*\n|\n(?=- )", (ROOT / page).read_text())
    quoted = [text for text in paragraphs if f"{KEPT})" in text]
    missing = [figure for text in quoted for figure in FIGURE.findall(text) if figure not in kept]
    assert missing == [], f"{page} quotes figures that {KEPT} does not have"


@pytest.mark.parametrize("page", [page for page in PAGES if page != KEPT])
def test_only_the_benchmarks_page_keeps_measurements(page: str) -> None:
    """A page that says how to measure something keeps its figures twice."""
    assert "python -m benchmarks." not in (ROOT / page).read_text()


def test_the_table_of_versions_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "README.md").read_text().splitlines()
    table = {
        cells[0]: cells[1:]
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
        if len(cells) == 3
    }
    for name, label in (("pyspark", "Apache Spark"), ("tensorflow", "TensorFlow"), ("keras", "Keras")):
        oldest, newest = (".".join(map(str, version)) for version in VERSIONS[name])
        assert any(text.startswith(f"{name}>={oldest}") for text in project["dependencies"])
        assert table[label][0].startswith(f"{oldest} or newer")
        assert table[label][1] == newest
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert table["Python"][0] == f"{', '.join(pythons[:-1])} or {pythons[-1]}"
    assert table["Python"][1] == ".".join(map(str, NEWEST_PYTHON))
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
    assert table["operating system"][0] == "Linux"
