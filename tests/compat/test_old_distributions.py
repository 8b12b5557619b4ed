"""An old library that is installed beside its replacement is refused with the remedy."""

import importlib
from importlib import metadata

import pytest

from emberflow_compat.old_distributions import OldDistributionError, check_replaced


def test_an_old_distribution_beside_ours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "2.2.5")
    with pytest.raises(ImportError, match=r"tensorflowonspark 2\.2\.5.*\n.*pip uninstall") as caught:
        check_replaced("tensorflowonspark")
    assert isinstance(caught.value, OldDistributionError)


def test_without_it_nothing_is_said() -> None:
    check_replaced("no-such-distribution")


@pytest.mark.parametrize("name", ["tensorflowonspark", "spark_tensorflow_distributor", "tensorspark", "hops"])
def test_each_package_checks_at_import(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = importlib.import_module(name)
    monkeypatch.setattr(metadata, "version", lambda _: "2.2.5")
    with pytest.raises(ImportError, match="emberflow-compat"):
        importlib.reload(package)
