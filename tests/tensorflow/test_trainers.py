"""The estimator has a trainer for each strategy."""

from emberflow._choices import STRATEGIES


def test_every_strategy_has_a_trainer() -> None:
    from emberflow.ml.trainers import TRAINERS

    assert set(TRAINERS) == set(STRATEGIES)
