"""Every Python block of README and of these pages runs, top to bottom, as a reader would type it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", "docs/run.md", "docs/feeding.md", "docs/estimator.md"]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("nothing_left")
def test_the_blocks_of_a_page_run(page: str, spark_cluster: "SparkSession") -> None:
    from pyspark.sql import functions as F

    Path("/tmp/keras-docs").mkdir(exist_ok=True)
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    rows = spark_cluster.range(60).select(
        F.array(*[(F.rand(seed) + F.col("id") % 3).cast("float") for seed in range(4)]).alias("features"),
        (F.col("id") % 3).alias("label"),
    )
    names: dict[str, Any] = {"__name__": "__main__", "ef": emberflow, "spark": spark_cluster, "df": rows}
    for number, block in enumerate(blocks):
        code = compile(block, f"{page}, block {number}", "exec")
        exec(code, names)  # that is the test


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []
