"""What the evaluator of an estimator does: each new checkpoint on all rows of some files, while the others train."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow import storage
from emberflow._plan import deadlines
from emberflow.ml.training import Training, build_from, make_dataset, make_model

if TYPE_CHECKING:
    from emberflow._feed.feed import Feed
    from emberflow._feed.file_source import FileSource
    from emberflow._node.context import Context

FOLDER = "evaluator"  # beside the event files of the training, so that TensorBoard shows a curve of its own
PREFIX = "eval_"  # of the metrics that it reports


def evaluate_checkpoints(training: Training, ctx: "Context") -> dict[str, float]:
    """Evaluate each new checkpoint until chief and workers are done, and then the last one; return its metrics."""
    from emberflow.ml.resume import restore_variables

    model, dataset = _model_and_rows(training, ctx)
    scores: dict[str, float] = {}
    seen = -1
    with _event_file(training.tensorboard, ctx) as write_event:
        is_over = False
        while not is_over:
            is_over = ctx.wait_until_over(deadlines.EVALUATION_INTERVAL)
            found = ctx.latest_checkpoint()
            if found is None or found.step == seen:
                continue
            seen = found.step
            restore_variables(model, found.path)
            scores = {
                name: float(value)
                for name, value in model.evaluate(dataset, return_dict=True, verbose=0).items()
            }
            ctx.report(step=seen, **{PREFIX + name: value for name, value in scores.items()})
            print(_line(seen, scores), flush=True)  # noqa: T201 - the node's log
            write_event(seen, scores)
    return scores


def _model_and_rows(training: Training, ctx: "Context") -> tuple[Any, Any]:
    import keras

    assert training.evaluation is not None  # noqa: S101 - for the type checker: it has an evaluator
    keras.utils.set_random_seed(training.seed)
    model = make_model(training)
    # The only rows of this node, in the order of the files.
    rows = dataclasses.replace(ctx, _feed=_feed_of(training.evaluation, ctx.work_dir))
    plain = dataclasses.replace(training, shuffle=False, has_validation=False)
    dataset = make_dataset(rows, model, plain, "train", None)
    build_from(model, dataset)
    return model, dataset


def _feed_of(source: "FileSource", folder: Path) -> "Feed":
    """Return all rows of the files as the rows of one rank."""
    from emberflow._feed.dataset import Shard
    from emberflow._feed.feed import Feed
    from emberflow._feed.file_source import rank_batches
    from emberflow._feed.shards import merge_shards
    from emberflow._feed.source_errors import translated_errors
    from emberflow._feed.spool import Spool, SpoolWriter

    # Encrypted in any case: a node does not know whether local files must be.
    with SpoolWriter(folder, encrypts=True) as writer:
        with translated_errors("evaluation"):
            for batch in rank_batches(source, 0, 1):
                writer.write(batch)
        file = writer.finish()
    facts = merge_shards([file.facts], "evaluation")
    spool = Spool(file, name="evaluation", schema=facts.schema)
    file.close()
    return Feed({"train": Shard(name="train", rank=0, spool=spool, facts=facts)})


@contextmanager
def _event_file(tensorboard: str | None, ctx: "Context") -> Iterator[Any]:
    """Yield a function that adds metrics to an event file for TensorBoard, on any storage."""
    if tensorboard is None:
        yield lambda _, __: None
        return
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(ctx.mirror(storage.join(tensorboard, FOLDER), fetch=False)))

    def write(step: int, scores: dict[str, float]) -> None:
        with writer.as_default():
            for name, value in scores.items():
                tf.summary.scalar(f"evaluation_{name}_vs_iterations", value, step=step)
        writer.flush()

    yield write
    writer.close()


def _line(step: int, scores: dict[str, float]) -> str:
    """Return a line of the log.

    >>> _line(120, {"loss": 0.25, "accuracy": 0.5})
    'evaluated step 120: loss 0.25  accuracy 0.5'
    """
    return f"evaluated step {step}: " + "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
