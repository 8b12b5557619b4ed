"""The estimator has a trainer for each strategy."""

import dataclasses

from emberflow._choices import STRATEGIES


def test_every_strategy_has_a_trainer() -> None:
    from emberflow.ml.trainers import TRAINERS

    assert set(TRAINERS) == set(STRATEGIES)


def test_labels_are_judged_only_for_losses_of_keras_that_say_what_they_must_be() -> None:
    import keras

    from emberflow.ml.row_checks import LabelRange, label_range_of

    sparse = LabelRange(loss="sparse_categorical_crossentropy", most=2)
    own = keras.losses.SparseCategoricalCrossentropy
    assert label_range_of("sparse_categorical_crossentropy", 3) == sparse
    assert label_range_of(own(from_logits=True), 3) == sparse
    assert label_range_of(keras.losses.sparse_categorical_crossentropy, 3) == sparse
    assert label_range_of(own(ignore_class=-1), 3) == dataclasses.replace(sparse, ignored=-1)
    binary = label_range_of("binary_crossentropy", 1)
    assert binary is not None
    assert not binary.is_strict

    class Mine(own):  # type: ignore[misc, valid-type]
        pass

    for unknown in (Mine(), own(axis=1), "mse", None, print):
        assert label_range_of(unknown, 3) is None
    assert label_range_of(own(), None) is None
