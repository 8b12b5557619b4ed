"""The options of a run. They are checked here once, and trusted by all other code."""

import re
from dataclasses import dataclass
from typing import Literal, TypeGuard, get_args

from emberflow._choices import STRATEGIES, GpuSource, Strategy, TransportChoice, check_choice
from emberflow.errors import ConfigError

Count = int | Literal["auto"]
PortRange = tuple[int, int]  # first and last

# The defaults of a run's own deadlines, in seconds; what nobody needs to set is in `_plan/deadlines.py`.
START_TIMEOUT = 120.0  # Executors import TensorFlow, perhaps all from one shared disk.
JOIN_TIMEOUT = 60.0  # All nodes are up by then; only connections between them are missing.
EXCHANGE_TIMEOUT = 600.0  # Longer than one step of a large model, or one validation, takes on a slow node.
EXECUTOR_TIMEOUT = 5.0  # Executors of one session register shortly after each other, except on slow clusters.
EVALUATOR_TIMEOUT = 60.0  # One evaluation of the last checkpoint, after training is done.
STOP_TIMEOUT = 600.0  # The last round may still be trained on, and a large model exported.


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How `emberflow.run` starts its nodes.

    Attributes:
        workers: Nodes that train, the chief included; "auto": every slot that Spark offers.
        ps: Parameter servers, in addition to the workers; "auto" reads NUM_TF_PS from Spark's executor environment.
        evaluator: Whether one more node evaluates during the training.
        gpus: GPUs of each worker, its own; ps and evaluator have none.
        gpu_source: "spark": GPUs that Spark schedules; "nvml": free GPUs of the host, where Spark manages none.
        gpu_resource: Spark's name for them, as in spark.executor.resource.NAME.amount; None: the session's setting
            spark.emberflow.gpuResource, or "gpu".
        transport: How ``ctx.distribute`` exchanges gradients: "ring", an authenticated socket ring; "collectives",
            TensorFlow's own, which use NCCL; "auto": the ring on CPUs and the collectives on GPUs; "none": not at
            all, and no port is opened for it.
        strategy: How the nodes train together: "data_parallel", synchronous, which needs every node;
            "parameter_server" or "periodic", asynchronous, where a lost worker is tolerated.
        tensorboard: Folder of event files that TensorBoard shows during the run.
        tensorboard_host: The interface TensorBoard listens on.
        checkpoint_dir: Storage that all nodes share, for checkpoints; kept afterwards.
        max_restarts: How often all nodes may be restarted after a lost node.
        restart_on_error: Restart after an exception of your function too.
        cache: Keep the rows on local disk for later epochs; False streams them once.
        spool_dir: Local folder for the rows; None: Spark's own.
        spool_limit: Most bytes of one worker's rows there.
        start_timeout: Seconds until all nodes must have joined.
        executor_timeout: Seconds in which all executors must register after the first one, within `start_timeout`.
        join_timeout: Seconds until nodes that train together must have connected to each other.
        exchange_timeout: Seconds after which a node that does not answer another during training is an error.
        evaluator_timeout: Seconds for a last evaluation after training is done.
        preload: Let nodes whose function uses TensorFlow import it while their rows arrive.
        verbose: Show progress and the nodes' output on the driver.
        encrypt: Encrypt everything that driver and nodes send each other, gradients and rows too; always so where
            Spark encrypts its traffic.
        allow_unencrypted: Let TensorFlow's own servers run where everything else is encrypted; they cannot encrypt.
        driver_host: The address at which executors reach this process; None: the address that Spark uses.
        port_range: Ports that driver and nodes may listen on, such as "30000-30100"; None: Spark's setting
            spark.emberflow.portRange, or any free ports.
        record: Folder in which the run records what happens, on any storage; None: Spark's setting
            spark.emberflow.record, or no record.
        page: Whether the driver serves a page of the run while it goes on; a number is the port on loopback.
    """

    workers: Count
    ps: Count = 0
    evaluator: bool = False
    gpus: int = 0
    gpu_source: GpuSource = "spark"
    gpu_resource: str | None = None
    transport: TransportChoice = "auto"
    strategy: Strategy = "data_parallel"
    tensorboard: str | None = None
    tensorboard_host: str = "127.0.0.1"
    checkpoint_dir: str | None = None
    max_restarts: int = 0
    restart_on_error: bool = False
    cache: bool = True
    spool_dir: str | None = None
    spool_limit: int | None = None
    start_timeout: float = START_TIMEOUT
    executor_timeout: float = EXECUTOR_TIMEOUT
    join_timeout: float = JOIN_TIMEOUT
    exchange_timeout: float = EXCHANGE_TIMEOUT
    evaluator_timeout: float = EVALUATOR_TIMEOUT
    preload: bool = True
    verbose: bool = True
    encrypt: bool = False
    allow_unencrypted: bool = False
    driver_host: str | None = None
    port_range: str | None = None
    record: str | None = None
    page: bool | int = False

    def __post_init__(self) -> None:
        check_count("workers", self.workers, auto="to take every slot Spark offers")
        check_count("ps", self.ps, least=0, auto="to read NUM_TF_PS from Spark's executor environment")
        check_count("gpus", self.gpus, least=0)
        check_count("max_restarts", self.max_restarts, least=0)
        check_flag("evaluator", self.evaluator)
        check_flag("restart_on_error", self.restart_on_error)
        check_flag("cache", self.cache)
        check_flag("preload", self.preload)
        check_flag("encrypt", self.encrypt)
        if self.spool_limit is not None:
            check_count("spool_limit", self.spool_limit)
        for name in ("tensorboard", "checkpoint_dir", "spool_dir", "record"):
            check_path(name, getattr(self, name))
        check_page("page", self.page)
        if self.gpu_resource is not None:
            check_resource("gpu_resource", self.gpu_resource)
        nvml = 'Leave it out; "nvml" is for clusters whose GPUs Spark does not manage.'
        check_choice("gpu_source", self.gpu_source, get_args(GpuSource), fix=nvml)
        check_choice("transport", self.transport, get_args(TransportChoice))
        check_strategy(self)
        for name, usual in (
            ("start_timeout", START_TIMEOUT),
            ("executor_timeout", EXECUTOR_TIMEOUT),
            ("join_timeout", JOIN_TIMEOUT),
            ("exchange_timeout", EXCHANGE_TIMEOUT),
            ("evaluator_timeout", EVALUATOR_TIMEOUT),
        ):
            check_seconds(name, getattr(self, name), usual)
        if self.port_range is not None:
            parse_port_range("port_range", self.port_range)


def check_strategy(config: RunConfig) -> None:
    """Refuse a strategy that is unknown, or options that contradict it."""
    strategy = config.strategy
    check_choice("strategy", strategy, STRATEGIES)
    if not STRATEGIES[strategy].is_asynchronous:
        return
    if config.ps == 0:
        raise ConfigError(
            f"Asynchronous training needs a parameter server. Received: strategy={strategy!r}, ps=0.",
            fix="Pass ps=1.",
        )
    if not config.cache:
        raise ConfigError(
            "Asynchronous training must keep the rows, because workers do not proceed in step. "
            f"Received: strategy={strategy!r}, cache=False.",
            fix="Leave out cache=False.",
        )
    least = STRATEGIES[strategy].least_workers
    if config.workers != "auto" and config.workers < least:
        raise ConfigError(
            f"`strategy={strategy!r}` needs {least} workers, the chief included. "
            f"Received: workers={config.workers}, ps={config.ps!r}.",
            fix=f'Pass workers={least} or more, or strategy="periodic".',
        )


def is_count(value: object, least: int = 1) -> TypeGuard[int]:
    """Tell whether the value is an int, `least` or more. A bool is not a count, although Python says it is an int."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_count(name: str, value: object, *, least: int = 1, auto: str = "") -> None:
    """Refuse anything but a whole number from `least` on, or "auto" where that means something."""
    if is_count(value, least) or (auto and value == "auto"):
        return
    or_auto = ', or "auto"' if auto else ""
    fix = f"Pass {name}={least} or higher" + (f', or {name}="auto" {auto}.' if auto else ".")
    raise ConfigError(
        f"`{name}` must be a whole number, {least} or more{or_auto}. Received: {name}={value!r}.", fix=fix
    )


def check_flag(name: str, value: object) -> None:
    """Refuse anything but True or False."""
    if not isinstance(value, bool):
        raise ConfigError(
            f"`{name}` must be True or False. Received: {name}={value!r}.", fix=f"Pass {name}=True."
        )


def check_page(name: str, value: object) -> None:
    """Refuse anything but True, False or a port."""
    if not isinstance(value, bool) and not (is_count(value) and value <= 65535):
        raise ConfigError(
            f"`{name}` must be True, False, or a port from 1 to 65535. Received: {name}={value!r}.",
            fix=f"Pass {name}=True: any free port is taken then.",
        )


def check_path(name: str, value: object) -> None:
    """Refuse anything but the text of a path or URL, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(
            f"`{name}` must be a path or URL as text. Received: {name}={value!r}.",
            fix=f'Pass {name}="/shared/folder" or a URL; a pathlib.Path as str(path).',
        )


def check_resource(name: str, value: object) -> None:
    """Refuse anything but the name of a Spark resource."""
    if not isinstance(value, str) or not value or any(letter in "=, \t\n" for letter in value):
        raise ConfigError(
            f"`{name}` must be the name of a Spark resource. Received: {name}={value!r}.",
            fix=f'Pass {name}="gpu" where the session has spark.executor.resource.gpu.amount, or leave it out.',
        )


def check_seconds(name: str, value: object, usual: float) -> None:
    """Refuse anything but a number of seconds above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1e9:  # False for nan
        raise ConfigError(
            f"`{name}` must be a number of seconds above 0. Received: {name}={value!r}.",
            fix=f"Pass {name}={usual}, or leave it out.",
        )


def parse_port_range(name: str, value: object) -> PortRange:
    """Return the first and the last port of a text such as "30000-30100".

    >>> parse_port_range("port_range", "30000-30100")
    (30000, 30100)
    """
    found = re.fullmatch(r"\s*(\d{1,5})\s*-\s*(\d{1,5})\s*", value) if isinstance(value, str) else None
    if found and 1 <= int(found[1]) <= int(found[2]) <= 65535:
        return int(found[1]), int(found[2])
    raise ConfigError(
        f"`{name}` must be two ports from 1 to 65535 as text, the lower one first. Received: {name}={value!r}.",
        fix=f'Pass {name}="30000-30100", or leave it out.',
    )
