"""Schedules against the numbers of their papers."""

import json
import math

import numpy as np
import pytest

from agentrl_jax.algorithms.experience.schedules import (
    Constant,
    Cosine,
    EPOPhaseWeight,
    ExponentialDecay,
    IntervalSchedule,
    Linear,
    RaiseOnPlateau,
    RolloutCount,
    Schedule,
    SuccessRates,
    half_solved_task_probs,
    hard_task_probs,
)
from agentrl_jax.errors import UserError


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (Constant(0.3), {0: 0.3, 999: 0.3}),
        (Linear(1.0, 0.5, 10), {0: 1, 5: 0.75, 10: 0.5, 99: 0.5}),
        (
            Cosine(0.0, 1.0, 100),
            {0: 0, 25: (1 - math.sqrt(0.5)) / 2, 50: 0.5, 100: 1, 1000: 1},
        ),  # SPEAR's replay
        (Cosine(1.0, 0.0, 200), {0: 1, 100: 0.5, 200: 0, 400: 0}),  # SPEAR's tool reward
        (ExponentialDecay(2.0, 0.1), {0: 2, 10: 2 / math.e}),
        (
            IntervalSchedule((8, 12, 15), 80),
            {0: 8, 79: 8, 80: 12, 159: 12, 160: 15, 1000: 15},
        ),  # ScalingInter-RL on WebArena
        (EPOPhaseWeight(), {0: 1, 75: 0.8271, 76: 0.8 * math.exp(-0.04), 150: 0.0398}),
    ],
)
def test_schedules_are_those_of_the_table(schedule: Schedule, values: dict[int, float]):
    assert [schedule(step) for step in values] == pytest.approx(list(values.values()), abs=5e-5)


def test_the_phase_weight_has_a_small_jump_in_the_middle():
    w = EPOPhaseWeight()
    assert w(75) == pytest.approx(0.8 + 0.2 * math.exp(-2), abs=1e-12) and w(76) < 0.78
    assert all(w(step) > w(step + 1) for step in range(150))
    with pytest.raises(UserError, match="at least 2 epochs"):
        EPOPhaseWeight(1)


def test_tasks_are_weighted_by_their_success_rate():
    rates = np.array([0.0, 0.5, 1.0])
    hard, half = hard_task_probs(rates, 0.5), half_solved_task_probs(rates, 0.5)
    assert hard == pytest.approx(np.exp([1, 0, -1]) / np.exp([1.0, 0, -1]).sum())
    assert half == pytest.approx(np.exp([-1, 0, -1]) / np.exp([-1.0, 0, -1]).sum())
    for form in (hard_task_probs, half_solved_task_probs):
        assert form(np.full(4, 0.3), 0.1) == pytest.approx([0.25] * 4)
        assert form(rates, 1e-6).sum() == pytest.approx(1) and np.isfinite(form(rates, 1e-6)).all()


@pytest.mark.parametrize(
    ("success", "count"), [(0.0, 8), (0.59, 8), (0.6, 8), (0.75, 5), (0.9, 3), (1.0, 2)]
)
def test_darts_rollout_counts(success: float, count: int):
    assert RolloutCount()(success) == count
    # as in the released code
    assert RolloutCount(threshold=1.0)(success) == (2 if success == 1 else 8)


def test_success_rates_are_moving_averages():
    rates = SuccessRates(0.5)
    for outcome in (1.0, 1.0, 0.0):
        rates.add("a", outcome)
    again = SuccessRates(0.5)
    again.load(json.loads(json.dumps(rates.state())))
    assert again(["a", "b"]).tolist() == [0.4375, 0.5]


def test_a_cap_is_raised_once_its_metric_plateaus():
    cap = RaiseOnPlateau((5, 10), patience=2, min_delta=0.5)
    values = []
    for number in (1.0, 2.0, 2.4, 3.0, 3.1, 3.2, 1.0, 1.0, 1.0, 1.0):
        cap.observe(number)
        values.append(cap.value)
    assert values == [5, 5, 5, 5, 5, 10, 10, 10, 10, 10]


def test_a_cap_resumes_from_its_state():
    numbers = [1.0, 1.0, 2.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0]
    uninterrupted = RaiseOnPlateau((1, 2, 3), patience=2)
    for cut in range(len(numbers)):
        first, second = RaiseOnPlateau((1, 2, 3), patience=2), RaiseOnPlateau((1, 2, 3), patience=2)
        for number in numbers[:cut]:
            first.observe(number)
        second.load(json.loads(json.dumps(first.state())))
        for number in numbers[cut:]:
            second.observe(number)
        if cut == 0:
            for number in numbers:
                uninterrupted.observe(number)
        assert second.state() == uninterrupted.state() and second.value == uninterrupted.value == 3
    with pytest.raises(UserError, match="at least 1"):
        RaiseOnPlateau((1,), patience=0)
