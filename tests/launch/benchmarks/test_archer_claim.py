"""What `agentrl-bench archer_claim` measures, by hand and by brute force."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from agentrl_jax.configs.archer_claim import TASKS
from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.archer.measures import (
    TurnsToLevel,
    turn_ratio,
    turns_to_level,
)
from agentrl_jax.launch.benchmarks.archer.rho import (
    CreditVariance,
    PossibleTargets,
    chain_variance,
    mean_variance,
    nested_variance,
    next_turn,
)
from agentrl_jax.launch.benchmarks.archer.settings import SEEDS, SIDES, TUNING_SEEDS, Setting
from agentrl_jax.launch.benchmarks.archer.table import TABLES, claim_table
from agentrl_jax.launch.benchmarks.archer_claim import ArcherClaim
from agentrl_jax.messages import assistant, user
from agentrl_jax.trajectories import Turn
from agentrl_jax.workers.pool import Task

ROOT = Path(__file__).parents[3]


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


def test_nested_variances_are_unbiased_where_the_noise_differs_between_utterances():
    rng = np.random.default_rng(0)
    weights, means, noise = np.array([0.5, 0.3, 0.2]), np.array([1, 0, -2]), np.array([0.1, 3, 6])
    choices = rng.choice(3, size=(4000, 8), p=weights)
    spread = noise[choices][..., None] * rng.normal(size=(4000, 8, 4))
    returns = means[choices][..., None] + spread
    estimate = mean_variance([nested_variance(state) for state in returns])
    true = float(weights @ means**2 - (weights @ means) ** 2)
    assert estimate.advantage == pytest.approx(true, abs=0.1)
    assert estimate.residual == pytest.approx(float(weights @ noise**2), abs=0.2)


def test_a_turn_is_answered_as_the_target_of_the_task_answers_it():
    turn = Turn((), assistant("Is it a dog?\n"), (user("No.\n"),), -1.0)
    before = Turn((), assistant("Is it a banana?\n"), (user("No.\n"),), -1.0)
    name, options = "agentrl_jax.envs:agentrl/TwentyQuestions-v0", {"words": "subset"}
    dog, pen = (
        next_turn(Task(name, 5, options, {"target": target}), [before], turn)
        for target in ("dog", "pen")
    )
    assert (dog.reward, dog.terminated, dog.observation[0].text) == (0.0, True, "Yes.\n")
    assert (pen.reward, pen.terminated, pen.observation[0].text) == (-1.0, False, "No.\n")


def test_the_possible_targets_are_those_that_the_answers_leave_open():
    posterior = PossibleTargets("subset")
    turn = Turn((), assistant("Is it a dog?\n"), (user("No.\n"),), -1.0)
    names = [str(option and option["target"]) for option in posterior([turn])]
    assert len(names) == 9 and not any("Dog" in name for name in names)
    assert len(posterior([])) == 10


def test_tuning_seeds_are_never_compared():
    assert not set(SEEDS) & set(TUNING_SEEDS)


def test_no_side_has_a_point_of_the_grid_that_ppo_lacks():
    grids = {
        side.variant: {(x.games, x.rate) for x in side.grid(turns_per_game=15)}
        for side in SIDES.values()
        if not side.tuned_as and side.fixed is None
    }
    assert len(grids) > 2 and all(grid <= grids["ppo"] for grid in grids.values())


def test_a_setting_names_all_that_it_changes():
    setting = Setting(8, 5e-4, {"advantage.lam": "0.9"})
    assert setting.name == "games=8,rate=0.0005,lam=0.9"
    assert setting.overrides("policy_gradient") == {
        "phases.rl.source.tasks": "8",
        "phases.rl.algorithm.optimizer.learning_rate": "0.0005",
        "phases.rl.algorithm.advantage.lam": "0.9",
    }


@pytest.mark.parametrize("section", TABLES)
def test_the_page_shows_the_cells_that_are_cached(section):
    table = TABLES[section](ROOT / "benchmarks/results/archer_claim")
    assert doc_tables.read_section(ROOT / "docs/archer.md", section) == table


def test_cells_that_were_not_run_are_printed_as_missing(tmp_path):
    rows = claim_table(tmp_path).splitlines()[2:]
    assert len(rows) == len(TASKS) and all(
        side.label in row and "missing" in row for row in rows for side in SIDES.values()
    )


def test_an_unknown_side_is_refused_in_one_sentence(tmp_path):
    bench = ArcherClaim(only="A-qpo", folder=str(tmp_path), page=str(Path("docs/archer.md")))
    with pytest.raises(UserError, match="no TASK-SIDE of tasks A"):
        bench.run()
