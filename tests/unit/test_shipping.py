"""Your function as bytes: what cannot travel is named before anything starts."""

import functools
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emberflow._driver import shipping
from emberflow._driver.shipping import ship
from emberflow.errors import ConfigError, ShippingError

GLOBAL_LOCK = threading.Lock()


@pytest.mark.parametrize("fn", [None, 3, "train", [print]])
def test_what_cannot_be_called_is_refused(fn: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        ship(fn, is_connect=False)
    assert f"Received: {fn!r}" in str(caught.value)


def uses_global_lock(ctx: Any) -> bool:
    return GLOBAL_LOCK.locked()


def with_closure(value: object) -> Callable[[Any], object]:
    def train(ctx: Any) -> object:
        return value

    return train


class Trainer:
    def __init__(self, value: object) -> None:
        self.value = value

    def train(self, _: Any) -> object:
        return self.value


class CallableTrainer(Trainer):
    def __call__(self, _: Any) -> object:
        return self.value


def with_default(ctx: Any, lock: object = GLOBAL_LOCK) -> object:
    return lock


def plain(ctx: Any, value: object = None, *, option: object = None) -> object:
    return value, option


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (with_closure(threading.Lock()), "value"),
        (uses_global_lock, "GLOBAL_LOCK"),
        (Trainer(threading.Lock()).train, "value"),
        (CallableTrainer(threading.Lock()), "value"),
        (with_default, "lock"),
        (functools.partial(plain, value=threading.Lock()), "value"),
        (functools.partial(functools.partial(plain, option=threading.Lock())), "option"),
    ],
    ids=["closure", "global", "method", "callable", "default", "partial", "partial of partial"],
)
def test_the_variable_that_cannot_be_pickled_is_named_with_its_type(fn: Any, name: str) -> None:
    with pytest.raises(ShippingError) as caught:
        ship(fn, is_connect=False)
    assert f"`{name}`, a _thread.lock" in str(caught.value)
    assert f"Make `{name}` inside the function" in str(caught.value)


def test_a_socket_is_named_too() -> None:
    with socket.socket() as sock, pytest.raises(ShippingError, match=r"`value`, a socket\.socket"):
        ship(with_closure(sock), is_connect=False)


def test_a_variable_deep_in_a_helper_is_still_an_error_with_a_remedy() -> None:
    helper = with_closure(threading.Lock())
    with pytest.raises(ShippingError, match="Fix: Make"):
        ship(lambda ctx: helper(ctx), is_connect=False)  # noqa: PLW0108 - the indirection is the point


def test_connect_takes_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "CONNECT_LIMIT", 1 << 20)
    large = with_closure(b"x" * (3 << 20))
    with pytest.raises(ShippingError, match="Received: 3 MB"):
        ship(large, is_connect=True)
    assert len(ship(large, is_connect=False)) > 3 << 20


def test_a_module_that_only_the_driver_has_travels_with_the_function(tmp_path: Path) -> None:
    (tmp_path / "my_training.py").write_text(
        "FACTOR = 21\ndef helper(): return 2 * FACTOR\ndef train(ctx): return helper()\n"
    )
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import my_training\n"
        "from emberflow._driver.shipping import ship\n"
        "sys.stdout.buffer.write(ship(my_training.train, is_connect=False))"
    )
    sent = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, check=True).stdout
    script = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())(None))"
    done = subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True, check=True)
    assert done.stdout.strip() == b"42"


def test_a_shipped_function_is_the_same_function() -> None:
    assert pickle.loads(ship(with_closure([1, 2]), is_connect=True))(None) == [1, 2]
