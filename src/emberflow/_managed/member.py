"""A task's part of a run: join the chief's hub, run this task's node to its end."""

import dataclasses
import logging
import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from emberflow._managed.run_connection import Order, Retries, connect
from emberflow._managed.verdict import Verdict
from emberflow._plan import deadlines
from emberflow._plan.plan import LogCopy
from emberflow._plan.roles import Node
from emberflow._protocol.frames import send
from emberflow._protocol.outcome import Ending, lost_outcome
from emberflow._protocol.sealed_file import LocalFile
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._protocol.sockets import address_of
from emberflow._task.driver_connection import dial, is_admitted
from emberflow._task.events import QuitError
from emberflow._task.node_setup import Surroundings, run_node
from emberflow._task.task_spec import TaskSpec
from emberflow._task.value_client import ValueClient, ValuePlan
from emberflow.errors import ClusterError, ConfigError, PeerError

log = logging.getLogger("emberflow")


@dataclass(frozen=True, kw_only=True)
class Member:
    """One task of a run.

    Attributes:
        nodes: All nodes of its cluster, as this task knows them.
        rank: The rank of its own.
        address: Its host, and TensorFlow's port there; 0 for any port.
        fn: What its node calls.
        key: The run's key.
        chief_address: Where the chief listens.
    """

    nodes: tuple[Node, ...]
    rank: int
    address: tuple[str, int]
    fn: Callable[[Any], Any]
    key: bytes = field(repr=False)
    chief_address: tuple[str, int]

    @property
    def me(self) -> Node:
        """Its node."""
        return self.nodes[self.rank]


class _KeptValues(ValueClient):
    """What functions return stays in their task: nobody asks for it."""

    def fetch_function(self, folder: Any) -> LocalFile | None:  # noqa: ARG002
        return None

    def deliver(self, value: Any, size: int) -> tuple[Ending, dict[str, str]]:  # noqa: ARG002
        return Ending.RETURNED, {}


def take_part(member: Member, start_timeout: float) -> Verdict:
    """Run this task's node as part of the chief's run; return how the run ended."""
    retries = Retries(start_timeout, f"the chief at {address_of(*member.chief_address)}")
    while True:
        with closing(connect(member.chief_address, member.key, retries)) as run:
            order = run.order
            if order is None:
                return run.await_verdict(deadlines.REFUSAL_TIMEOUT + deadlines.VERDICT_TIMEOUT)
            if order.plan.nodes != member.nodes:
                raise ConfigError(
                    f"All tasks of a run must know the same cluster. Received: {len(member.nodes)} tasks here, "
                    f"{len(order.plan.nodes)} at the chief.",
                    fix="Render the job again, and start all of its tasks together.",
                )
            driver = join(member, member.chief_address)
            if driver is not None:
                with driver:  # the chief waits until all have gone
                    run_member(member, order, driver, log_copy="no_noise")
                return run.await_verdict(order.plan.evaluator_timeout + deadlines.VERDICT_TIMEOUT)
        retries.pause(ConnectionError("it still ends the run before"))


def join(member: Member, address: tuple[str, int]) -> SealedSocket | None:
    """Return the connection of this task to the chief's hub; None where the hub does not take it."""
    try:
        driver = dial(address, member.key, member.rank, member.address[0], deadlines.DIAL_TIMEOUT)
    except (OSError, PeerError):
        return None
    try:
        if is_admitted(driver, deadlines.DIAL_TIMEOUT):
            return driver
    except (OSError, PeerError):
        pass
    driver.close()
    return None


def follow_run(chief_address: tuple[str, int], key: bytes, start_timeout: float, ctx: Any) -> None:  # noqa: ARG001
    """Wait until the chief's run has ended; a node of the role tensorboard calls this.

    Raises:
        ClusterError: The run has failed: its tasks are started again, and this one with them.
    """
    retries = Retries(start_timeout, f"the chief at {address_of(*chief_address)}")
    with closing(connect(chief_address, key, retries)) as run:
        verdict = run.await_verdict(None)  # as long as the training; the kernel notices a host that vanishes
    if verdict.code:
        first_line = verdict.text.partition("\n")[0]
        raise ClusterError(
            f"The run whose logs were shown has failed. Received: {first_line}", fix="See the chief's log."
        )


def run_member(member: Member, order: Order, driver: SealedSocket, log_copy: LogCopy) -> None:
    """Run the node to its end; the chief is told how it ended."""
    plan = dataclasses.replace(order.plan, log_copy=log_copy)
    spec = TaskSpec(
        plan=plan, key=member.key, fn=cloudpickle.dumps(member.fn), data=order.data, storage=order.storage
    )
    host, port = member.address
    values = _KeptValues(ValuePlan(), plan, member.key, member.rank)
    with ExitStack() as held:
        try:
            surroundings = Surroundings(host=host, tf_port=port)
            _, value = run_node(spec, member.me, surroundings, driver, iter(()), values)
            if value is not None:
                held.enter_context(value)
        except QuitError:
            return
        except Exception as error:  # noqa: BLE001 - else the chief would believe that this task was killed
            traceback.print_exc()
            problem = f"its task raised {type(error).__name__}: {error}"
            with suppress(OSError):
                send(driver, lost_outcome(member.me, host, problem=problem, fix="See the log of that task."))
