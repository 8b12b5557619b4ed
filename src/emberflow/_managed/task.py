"""One task from its variables to its end: the chief leads, all others take part, servers by themselves stay up."""

import functools
import ipaddress
import os
import secrets
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from emberflow._managed.chief import lead, make_order
from emberflow._managed.member import Member, follow_run, take_part
from emberflow._managed.options import NodeCommand
from emberflow._managed.place import TENSORBOARD, Place, read_place
from emberflow._managed.run_connection import Retries, await_name
from emberflow._managed.run_key import read_key
from emberflow._managed.verdict import Verdict
from emberflow._node.data_servers import serve_data, serve_dispatcher
from emberflow._node.followed_logs import follow_logs
from emberflow._node.held_port import held_port
from emberflow._node.program_file import USAGE, ProgramFile
from emberflow._node.tensorboard import start_tensorboard
from emberflow._plan.roles import Node
from emberflow._protocol.sockets import unbracketed
from emberflow._task.node_setup import check_tensorboard
from emberflow.errors import ConfigError

ALONE = (Node(rank=0, role="chief", index=0),)
LOOPBACK = ("127.0.0.1", 0)

Work = Callable[[Any], Any]


def run_task(command: NodeCommand, environment: Mapping[str, str]) -> Verdict:
    """Run the task that the variables describe; return how its run ended.

    Raises:
        EmberflowError: It could not begin.
    """
    place, options = read_place(environment), command.options
    if place.role == TENSORBOARD:
        return _run_alone(_tensorboard(place, options, environment), place, options)
    fn = _work_of(place, command)
    if not place.has_chief:
        return _run_alone(fn, place, options)
    nodes = place.nodes
    member = Member(
        nodes=nodes,
        rank=place.rank,
        address=place.address,
        fn=fn,
        key=read_key(environment) if place.has_others else secrets.token_bytes(),
        chief_address=place.chief_address,
    )
    await_name(place.address[0], Retries(options.start_timeout, f"the name {place.address[0]} in DNS"))
    if member.rank:
        return take_part(member, options.start_timeout)
    return lead(member, functools.partial(make_order, nodes, options))


def _work_of(place: Place, command: NodeCommand) -> Work:
    """Return what the task's node calls."""
    _, port = place.address
    if place.role == "dispatcher":
        return functools.partial(serve_dispatcher, port)
    if place.role == "data-worker":
        if "dispatcher" not in place.cluster:
            raise ConfigError(
                f"A data worker needs a dispatcher. Received: a cluster of {sorted(place.cluster)}.",
                fix="Add `dispatcher: {replicas: 1}` to the roles.",
            )
        dispatcher = place.cluster["dispatcher"][0]
        return functools.partial(serve_data, dispatcher, place.cluster[place.role][place.index], port)
    if command.program is None:
        raise ConfigError(
            f"A task of the role {place.role} needs a program. Received: none in the command line.", fix=USAGE
        )
    return ProgramFile.of(command.program, command.arguments)


def _run_alone(fn: Work, place: Place, options: Namespace) -> Verdict:
    """Run a server that is no node of a training: a cluster of one, with a key that nobody else needs."""
    host, port = place.address
    member = Member(
        nodes=ALONE,
        rank=0,
        address=(LOOPBACK[0], 0) if place.role == TENSORBOARD else (host, port),
        fn=fn,
        key=secrets.token_bytes(),
        chief_address=LOOPBACK,
    )
    own = Namespace(**vars(options) | {"gpus": 0, "record": None})  # those are the training's
    return lead(member, functools.partial(make_order, ALONE, own))


def _tensorboard(place: Place, options: Namespace, environment: Mapping[str, str]) -> Work:
    if not options.log_dir:
        raise ConfigError(
            "The role tensorboard needs the folder to show. Received: no --log-dir.",
            fix="Set log_dir in the job's description.",
        )
    check_tensorboard()
    if not place.has_chief:
        raise ConfigError(
            f"TensorBoard ends with the chief. Received: a cluster of {sorted(place.cluster)}.",
            fix="Add a chief or workers to EMBERFLOW_CLUSTER.",
        )
    host, port = place.address
    follow = functools.partial(follow_run, place.chief_address, read_key(environment), options.start_timeout)
    interface = host if _is_loopback(host) else "0.0.0.0"  # a browser connects from anywhere
    return functools.partial(show_tensorboard, options.log_dir, interface, port, follow)


def show_tensorboard(folder: str, host: str, port: int, follow: Work, ctx: Any) -> None:
    """Show a folder of event files until `follow` returns; called in a node, with which TensorBoard ends."""
    resolved = ctx.absolute_path(folder)
    logs = follow_logs(resolved, ctx._mirror)  # noqa: SLF001 - internal to Emberflow
    start_tensorboard(
        logs,
        host,
        held_port((port, port), "TensorBoard"),
        dict(os.environ),
        _say_where,
    )
    follow(ctx)


def _say_where(url: str) -> None:
    sys.stderr.write(f"TensorBoard: {url}\n")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(unbracketed(host)).is_loopback
    except ValueError:
        return host == "localhost"
