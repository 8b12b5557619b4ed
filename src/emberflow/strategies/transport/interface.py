"""What a strategy needs of the network."""

from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from emberflow.errors import PeerError

if TYPE_CHECKING:
    from emberflow.strategies.transport.rounded_sum import Residuals

Array = NDArray[Any]
Tensor = Any  # tf.Tensor: TensorFlow has no types, and must not be imported here


class Transport(Protocol):
    """Sums and gathers tensors over all ranks, inside graphs and outside.

    All ranks must call the same methods in the same order, with tensors of the same types and, for `sum`, of
    the same shapes.
    """

    @property
    def rank(self) -> int:
        """Our number, from 0. Rank 0 is the chief."""

    @property
    def ranks(self) -> int:
        """How many ranks there are."""

    @property
    def failure(self) -> PeerError | None:
        """Why the transport failed; inside a graph TensorFlow replaces it by an error of its own."""

    def sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over all ranks, the same bits on each rank."""

    @property
    def wire_dtypes(self) -> tuple[str, ...]:
        """The types as which gradients may travel."""

    def average(
        self, head: Tensor, tensors: list[Tensor], residuals: "Residuals | None" = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the sum of `head` and the average of each tensor over all ranks, the same bits on each rank.

        The first number of `head`, a float32 vector, is the weight of this rank: a rank of weight 0 counts as if it
        had no tensors, whatever they hold. Inside a graph a tensor may be sent while others are still computed,
        the last ones first. With residuals tensors are rounded to bfloat16 on their way.
        """

    def gather(self, tensor: Tensor) -> Tensor:
        """Return all ranks' slices one after the other in rank order; first dimensions may differ."""

    def all_gather(self, array: Array) -> list[Array]:
        """Return each rank's array, flat, in rank order; sizes may differ. Not inside graphs."""

    def close(self) -> None:
        """Disconnect. May be called twice."""
