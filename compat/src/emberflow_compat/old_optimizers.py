"""The argument `lr` of optimizers, which today's tf_keras accepts and ignores: old programs would not learn."""

from typing import Any

from emberflow_compat.module_patches import when_imported

MODULE = "tf_keras.src.optimizers.optimizer"
KEPT = "_lr_of_old_programs"


def honour_lr() -> None:
    """Let ``Adam(lr=0.2)`` mean ``Adam(learning_rate=0.2)``, once tf_keras is imported; that is not done here."""
    when_imported(MODULE, _patch)


def _patch(module: Any) -> None:
    base = module._BaseOptimizer  # noqa: SLF001 - there is no other place
    if hasattr(base, KEPT):
        return
    process = base._process_kwargs  # noqa: SLF001

    def process_kwargs(self: Any, kwargs: dict[str, Any]) -> None:
        setattr(self, KEPT, kwargs.pop("lr", None))
        process(self, kwargs)

    base._process_kwargs = process_kwargs  # noqa: SLF001
    setattr(base, KEPT, None)
    for kind in (base, module.Optimizer):
        _patch_rate(kind)


def _patch_rate(kind: Any) -> None:
    build = kind._build_learning_rate  # noqa: SLF001

    def build_learning_rate(self: Any, learning_rate: Any) -> Any:
        old = getattr(self, KEPT)
        return build(self, learning_rate if old is None else old)

    kind._build_learning_rate = build_learning_rate  # noqa: SLF001
