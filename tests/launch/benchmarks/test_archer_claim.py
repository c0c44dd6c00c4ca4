"""What `agentrl-bench archer_claim` measures, by hand and by brute force."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.archer.measures import (
    TurnsToLevel,
    turn_ratio,
    turns_to_level,
)
from agentrl_jax.launch.benchmarks.archer.rho import (
    CreditVariance,
    PossibleTargets,
    chain_variance,
    grouped_variance,
    mean_variance,
)
from agentrl_jax.launch.benchmarks.archer.settings import SEEDS, SIDES, TUNING_SEEDS, Setting
from agentrl_jax.launch.benchmarks.archer.table import claim_table
from agentrl_jax.launch.benchmarks.archer_claim import ArcherClaim
from agentrl_jax.messages import assistant, user
from agentrl_jax.trajectories import Turn


def test_turns_to_a_level_are_on_the_line_between_evaluations():
    measured = turns_to_level([0, 100, 300], [-10.0, -8.0, -4.0], level=-6.0, budget=300)
    assert measured.turns == pytest.approx(200) and not measured.censored
    assert measured.area == pytest.approx((100 * -9 + 200 * -6) / 300, abs=0.01)


def test_a_level_that_is_not_reached_counts_with_the_budget_and_as_censored():
    flat = turns_to_level([0, 150, 310], [-10.0, -9.0, -9.5], level=-6.0, budget=300)
    late = turns_to_level([0, 200, 400], [-10.0, -9.0, -5.0], level=-6.0, budget=300)
    assert (flat.turns, flat.censored) == (300, True)
    assert (late.turns, late.censored) == (300, True)


def test_a_ratio_is_the_geometric_mean_over_paired_seeds():
    base = [TurnsToLevel(turns, False, 0.0) for turns in (400.0, 900.0)]
    side = [TurnsToLevel(turns, False, 0.0) for turns in (100.0, 225.0)]
    ratio = turn_ratio(base, side)
    assert ratio.ratio == pytest.approx(4) and ratio.factor == pytest.approx(1)


def brute_force_chain(length: int, horizon: int, right: float) -> CreditVariance:
    """Over all sequences of right and wrong letters."""

    def success(place: int, choices: tuple[bool, ...]) -> bool:
        for choice in choices:
            place = place + 1 if choice else max(place - 1, 0)
            if place == length:
                return True
        return False

    def q(place: int, left: int, choice: bool) -> float:
        return sum(
            math.prod(right if x else 1 - right for x in rest) * success(place, (choice, *rest))
            for rest in itertools.product((False, True), repeat=left - 1)
        )

    advantage = residual = turns = 0.0
    for choices in itertools.product((False, True), repeat=horizon):
        weight, place = math.prod(right if x else 1 - right for x in choices), 0
        for turn, choice in enumerate(choices):
            left = horizon - turn
            values = {x: q(place, left, x) for x in (False, True)}
            mean = right * values[True] + (1 - right) * values[False]
            advantage += weight * (values[choice] - mean) ** 2
            residual += weight * values[choice] * (1 - values[choice])
            turns += weight
            place = place + 1 if choice else max(place - 1, 0)
            if place == length:
                break
    return CreditVariance(advantage / turns, residual / turns)


def test_the_credit_of_a_chain_equals_a_sum_over_all_its_games():
    exact, summed = chain_variance(3, 6, 0.7), brute_force_chain(3, 6, 0.7)
    assert exact.advantage == pytest.approx(summed.advantage)
    assert exact.residual == pytest.approx(summed.residual)
    assert exact.bound == pytest.approx(1 / exact.rho**2)


def test_rerolled_variances_are_unbiased():
    rng, weights, means = np.random.default_rng(0), np.array([0.5, 0.3, 0.2]), np.array([1, 0, -2])
    states = []
    for _ in range(1000):
        sample = rng.choice(3, size=24, p=weights)
        returns = means[sample] + 3 * rng.normal(size=24)
        groups = [returns[sample == k].tolist() for k in range(3) if (sample == k).any()]
        state = grouped_variance(groups)
        assert state is not None
        states.append(state)
    estimate = mean_variance(states)
    true = float(weights @ means**2 - (weights @ means) ** 2)
    assert estimate.advantage == pytest.approx(true, abs=0.12)
    assert estimate.residual == pytest.approx(9, abs=0.2)


def test_a_state_without_a_repeated_utterance_tells_nothing():
    assert grouped_variance([[1.0], [2.0]]) is None and grouped_variance([[1.0, 2.0]]) is None


def test_the_possible_targets_are_those_that_the_answers_leave_open():
    posterior = PossibleTargets("subset")
    turn = Turn((), assistant("Is it a dog?\n"), (user("No.\n"),), -1.0)
    names = [str(option and option["target"]) for option in posterior([turn])]
    assert len(names) == 9 and not any("Dog" in name for name in names)
    assert len(posterior([])) == 10


def test_tuning_seeds_are_never_compared():
    assert not set(SEEDS) & set(TUNING_SEEDS)


def test_every_tuned_side_has_the_same_grid():
    grids = {
        side.variant: [(x.games, x.rate) for x in side.grid(turns_per_game=15)]
        for side in SIDES.values()
        if not side.tuned_as and side.fixed is None
    }
    assert len(grids) > 1 and len({tuple(grid) for grid in grids.values()}) == 1


def test_a_setting_names_all_that_it_changes():
    setting = Setting(8, 5e-4, {"advantage.lam": "0.9"})
    assert setting.name == "games=8,rate=0.0005,lam=0.9"
    assert setting.overrides("policy_gradient") == {
        "phases.rl.source.tasks": "8",
        "phases.rl.algorithm.optimizer.learning_rate": "0.0005",
        "phases.rl.algorithm.advantage.lam": "0.9",
    }


def test_cells_that_were_not_run_are_printed_as_missing(tmp_path):
    rows = claim_table(tmp_path).splitlines()[2:]
    assert len(rows) >= len(SIDES) and all("missing" in row for row in rows)


def test_an_unknown_side_is_refused_in_one_sentence(tmp_path):
    bench = ArcherClaim(only="A-qpo", folder=str(tmp_path), page=str(Path("docs/archer.md")))
    with pytest.raises(UserError, match="no TASK-SIDE of tasks A"):
        bench.run()
