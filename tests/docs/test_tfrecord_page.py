"""What the page on TFRecord says about save modes is what Spark says."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import emberflow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "tfrecord.md"


def test_lines_of_the_old_connectors_and_the_forms_that_work(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    page = PAGE.read_text().replace("hdfs:///", f"{tmp_path}/")
    section = page[page.index("### Save modes") : page.index("## Streams")]
    old, *working = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[:3]
    assert "mode" not in old
    names = {"df": spark_cluster.range(10), "ef": emberflow}
    with pytest.raises(PySparkException) as refused:
        exec(old, names)
    assert str(refused.value).splitlines()[0] in section
    for block in working:
        exec(block, names)
        (path,) = re.findall(rf'"({tmp_path}/[^"]+)"', block)
        rows = spark_cluster.read.format("tfrecord").load(path).collect()
        assert sorted(row["id"] for row in rows) == list(range(10))
