"""`ef.cluster` has the options of `ef.run`, with the same defaults and the same meaning."""

import inspect
import re
from typing import Any

import emberflow as ef
from emberflow.config import RunConfig

RUN = inspect.signature(ef.run).parameters
CLUSTER = inspect.signature(ef.cluster).parameters
OF_ONE_RUN = {"data", "cache", "preload", "page", "cluster"}  # its rows; a cluster has page()
OTHER_WORDS = {  # what a cluster that stays up adds to the meaning, or shortens
    "fn": "takes what you feed",
    "workers": "every slot that Spark offers.",
    "gpus": "held until the cluster is stopped",
    "transport": "see `emberflow.run`",
    "strategy": "see `emberflow.run`",
    "tensorboard": "Folder of event files that TensorBoard shows",
    "max_restarts": "fed again from its first row",
    "spool_dir": "Local folder for the rows of a round",
    "spark": "where executors reach this process",
    "encrypt": "feeding tasks",
}


def explained(function: Any) -> dict[str, str]:
    """Return what the docstring says of each argument, on one line."""
    text = inspect.getdoc(function) or ""
    arguments = text.split("\nArgs:\n")[1].split("\n\n")[0]
    found = re.split(r"^    (\w+): ", arguments, flags=re.MULTILINE)[1:]
    return {name: " ".join(words.split()) for name, words in zip(found[::2], found[1::2], strict=True)}


def test_the_options_are_those_of_run_in_their_order() -> None:
    assert list(CLUSTER) == [name for name in RUN if name not in OF_ONE_RUN]
    assert [p.name for p in CLUSTER.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY] == ["fn"]


def test_defaults_and_types_are_those_of_run() -> None:
    assert CLUSTER["workers"].default is inspect.Parameter.empty  # a run may leave them to its cluster
    options = [name for name in CLUSTER if name not in {"fn", "workers"}]
    assert [name for name in options if CLUSTER[name].default != RUN[name].default] == []
    assert [name for name in options if CLUSTER[name].annotation != RUN[name].annotation] == []


def test_the_docstrings_explain_every_option_alike() -> None:
    of_run, of_cluster = explained(ef.run), explained(ef.cluster)
    assert list(of_cluster) == list(CLUSTER)
    different = [name for name in CLUSTER if of_cluster[name] != of_run[name]]
    assert different == list(OTHER_WORDS)
    assert [name for name, words in OTHER_WORDS.items() if words not in of_cluster[name]] == []


def test_every_option_reaches_the_settings_of_the_nodes() -> None:
    settings = {name for name in inspect.signature(RunConfig).parameters if name not in OF_ONE_RUN}
    assert settings == set(CLUSTER) - {"fn", "spark"}
