"""RunPlan: everything that was decided before anything starts, in one value."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from emberflow._choices import STRATEGIES, GpuSource, Strategy, Transport
from emberflow._plan.path_rules import PathRules
from emberflow._plan.roles import Node
from emberflow._plan.stages import Stage, stages_of
from emberflow.config import EVALUATOR_TIMEOUT, EXCHANGE_TIMEOUT, JOIN_TIMEOUT, PortRange

Rendezvous = Literal["driver", "barrier"]
Launch = Literal["barrier", "independent", "manager"]
LogCopy = Literal["all", "no_noise", "none"]


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan:
    """Where this attempt may write checkpoints, and what it may start from.

    Attributes:
        folder: The user's shared folder.
        number: The attempt's number in that folder, above that of any earlier attempt or run.
        own: The folder that only this attempt writes to.
        resume_from: The newest complete checkpoint when the attempt was planned, the same for all ranks.
        probe: A file in the folder that every node must see: otherwise the folder is not shared.
    """

    folder: str
    number: int
    own: str
    resume_from: str | None
    probe: str


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What one attempt will start. Printable; holds no key and no code.

    Attributes:
        run_id: Names the run in process environments, folders and logs.
        attempt: 0 for the first attempt of the run.
        nodes: One per rank.
        rendezvous: Where nodes learn each other's addresses: at the driver (milliseconds), or by Spark's
            barrier (a second) where the driver cannot be dialled.
        launch: How Spark starts the nodes: "barrier", one stage whose tasks start all at the same time or not at all;
            "independent", tasks that start as executors come, where Spark refuses barriers: the driver waits until
            all run, and admits one task per rank; "manager": a cluster manager has started them, without Spark.
        launch_reason: Why it is this launch.
        driver_address: Host and port that tasks dial; None when the driver cannot be reached.
        start_timeout: Seconds until every node must have joined.
        join_timeout: Seconds until nodes that train together must have connected to each other.
        exchange_timeout: Seconds after which a node that does not answer another during training is an error.
        evaluator_timeout: Seconds that the evaluator gets for a last evaluation after training is done.
        forward_logs: Whether nodes' output is sent to the driver line by line.
        log_copy: What of it a task copies to its standard error, which is the executor's log. In local mode that is
            the driver's terminal: then at most what is not TensorFlow's start-up noise.
        python: The driver's Python as (major, minor); executors must agree.
        waits_for_rows: Whether Spark computes rows before the first node can start.
        preload: Packages that your function uses, which nodes import while their rows arrive.
        gpus: GPUs of each worker.
        gpu_source: What assigns them: Spark's scheduler, or NVML.
        gpu_resource: Spark's name for them.
        transport: How ranks that train exchange gradients: an authenticated socket ring, TensorFlow's collectives, or
            not at all.
        strategy: What the nodes do together; asynchronous ones go on without a lost worker.
        tensorboard: Folder and interface for TensorBoard beside the chief.
        checkpoints: Where checkpoints go, if anywhere.
        paths: Which URLs your function means by paths without a scheme.
        port_range: First and last port that driver and nodes may listen on; None for any.
        encrypt: Whether everything between driver and nodes is encrypted; messages and files are in any case.
        encrypts_files: Whether what nodes and tasks keep on local disk is encrypted, since Spark's files are.
        allows_tf_servers: Whether TensorFlow's own servers, which cannot encrypt, may run.
        is_live: Whether nodes outlive the Spark stage that starts them.
        is_local: Whether Spark runs its tasks on the driver's own JVM, without executors.
    """

    run_id: str
    attempt: int = 0
    nodes: tuple[Node, ...]
    rendezvous: Rendezvous
    launch: Launch = "barrier"
    launch_reason: str = ""
    driver_address: tuple[str, int] | None
    start_timeout: float
    forward_logs: bool
    python: tuple[int, int]
    log_copy: LogCopy = "all"
    join_timeout: float = JOIN_TIMEOUT
    exchange_timeout: float = EXCHANGE_TIMEOUT
    evaluator_timeout: float = EVALUATOR_TIMEOUT
    waits_for_rows: bool = False
    preload: tuple[str, ...] = ()
    gpus: int = 0
    gpu_source: GpuSource = "spark"
    gpu_resource: str = "gpu"
    transport: Transport = "ring"
    strategy: Strategy = "data_parallel"
    tensorboard: tuple[str, str] | None = None
    checkpoints: CheckpointPlan | None = None
    paths: PathRules = field(default_factory=PathRules)
    port_range: PortRange | None = None
    encrypt: bool = False
    encrypts_files: bool = False
    allows_tf_servers: bool = True
    is_live: bool = False
    is_local: bool = False

    @property
    def is_asynchronous(self) -> bool:
        """Whether each worker trains at its own pace, and none needs the others."""
        return STRATEGIES[self.strategy].is_asynchronous

    def can_lose(self, lost: Collection[int]) -> bool:
        """Tell whether the run can continue without these ranks: only workers, and not more than the strategy allows.

        >>> from emberflow._plan.roles import assign_roles
        >>> plan = RunPlan(run_id="x", nodes=assign_roles(3, ps=1), rendezvous="driver", driver_address=None,
        ...     start_timeout=1, forward_logs=False, python=(3, 11), strategy="parameter_server")
        >>> plan.can_lose([1]), plan.can_lose([1, 2]), plan.can_lose([3])
        (True, False, False)
        """
        if not self.is_asynchronous or any(self.nodes[rank].role != "worker" for rank in lost):
            return False
        remaining = sum(node.role == "worker" and node.rank not in lost for node in self.nodes)
        return remaining >= STRATEGIES[self.strategy].least_remaining

    @property
    def holds_tasks(self) -> bool:
        """Whether the tasks of live nodes stay as long as the nodes: Spark would release their executors as idle."""
        return self.is_live and self.launch == "independent"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that start these nodes."""
        return stages_of(self.nodes, self.gpus if self.gpu_source == "spark" else 0)
