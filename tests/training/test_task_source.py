"""Task sources: one environment, fixed sets, and mixtures with weights, schedules and curricula."""

import copy
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.experience.schedules import (
    Linear,
    SuccessRateSampler,
    half_solved_task_probs,
)
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.lazy_tasks import LazyTasks
from agentrl_jax.training.mixture import Mixture, systematic_sample
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.training.task_set import TaskSet
from agentrl_jax.training.task_source import (
    EnvironmentSpec,
    TaskSource,
    find_task_sources,
    numbered,
)
from agentrl_jax.workers.pool import Task

LETTERS = EnvironmentSpec("tests/Letters-v0")
KUHN = EnvironmentSpec("agentrl/Kuhn-v0", {"opponent": "random"})
BOARD = EnvironmentSpec("agentrl/TicTacToe-v0")


def draw(source: TaskSource, steps: int, count: int, seed: int = 3) -> list[list[Task]]:
    iterator = source.open(seed, LETTERS)
    return [list(iterator.draw(step, 0, count)) for step in range(steps)]


def labels(tasks: list[Task]) -> Counter[str]:
    return Counter(task.label for task in tasks)


def test_tasks_are_made_when_they_are_indexed():
    indices: list[int] = []

    def make(i: int) -> Task:
        indices.append(i)
        return KUHN.task(i)

    tasks = numbered(LazyTasks(4, make), 10, "kuhn")
    assert len(tasks) == 4 and indices == []
    assert tasks[2] == Task(KUHN.name, 2, KUHN.options, group=12, label="kuhn") and indices == [2]
    assert tasks[-1].seed == 3
    assert [task.name for task in tasks] == ["kuhn#0", "kuhn#1", "kuhn#2", "kuhn#3"]
    with pytest.raises(IndexError):
        tasks[4]


def test_an_environment_and_a_set_draw_the_seeds_of_their_formula():
    """The formulas of the first release: a run that was reproducible stays so."""
    iterator, experiments = KUHN.open(3, LETTERS), KUHN.open(3, BOARD)
    for step, round_index, key in ((0, 0, (0,)), (4, 0, (4,)), (4, 2, (4, 2))):
        tasks = list(iterator.draw(step, round_index, 5))
        assert [task.seed for task in tasks] == [seed_of(3, 2, *key, i) for i in range(5)]
        assert tasks == list(experiments.draw(step, round_index, 5))
        rng = np.random.default_rng([task.seed for task in tasks])
        recurring = TaskSet(7).open(3, KUHN).draw(step, round_index, 5)
        indices = rng.integers(7, size=5).tolist()
        assert [task.seed for task in recurring] == [seed_of(3, 2, index) for index in indices]
        assert {task.environment for task in recurring} == {KUHN.name}


def test_a_set_of_an_environment_of_its_own_does_not_use_the_experiments():
    assert {t.environment for t in TaskSet(2, environment=BOARD).open(0, KUHN).draw(0, 0, 9)} == {
        BOARD.name
    }


def test_a_mixture_of_one_member_draws_what_the_member_draws():
    for member in (KUHN, TaskSet(3, environment=KUHN)):
        alone, mixed = draw(member, 3, 6), draw(Mixture({"kuhn": member}), 3, 6)
        assert [[task.seed for task in tasks] for tasks in mixed] == [
            [task.seed for task in tasks] for tasks in alone
        ]
        assert {task.label for tasks in mixed for task in tasks} == {"kuhn"}


@given(
    weights=st.lists(st.floats(0, 10), min_size=1, max_size=6).filter(lambda w: sum(w) > 1e-3),
    count=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_each_index_has_its_share_rounded_up_or_down(weights: list, count: int, seed: int):
    values = np.array(weights)
    counts = Counter(systematic_sample(values, count, np.random.default_rng(seed)))
    shares = count * values / values.sum()
    assert counts.total() == count
    for i, share in enumerate(shares):
        assert np.floor(share - 1e-9) <= counts[i] <= np.ceil(share + 1e-9)
        assert counts[i] == 0 or weights[i] > 0


def test_shares_are_exact_in_expectation_and_their_order_is_random():
    values = np.array([1.0, 2.5, 0.25])
    samples = [systematic_sample(values, 3, np.random.default_rng(i)) for i in range(4000)]
    means = np.mean([[sample.count(m) for m in range(3)] for sample in samples], axis=0)
    assert means == pytest.approx(3 * values / values.sum(), abs=0.03)
    firsts = np.bincount([sample[0] for sample in samples], minlength=3) / 4000
    assert firsts == pytest.approx(values / values.sum(), abs=0.03)


def test_weights_and_schedules_divide_a_step():
    games = {"kuhn": KUHN, "board": BOARD}
    assert labels(draw(Mixture(games), 1, 10)[0]) == {"kuhn": 5, "board": 5}
    assert labels(draw(Mixture(games, {"kuhn": 4, "board": 1}), 1, 10)[0]) == {
        "kuhn": 8, "board": 2
    }  # fmt: skip
    schedule = Mixture(games, {"kuhn": Linear(1.0, 0.0, 2), "board": Linear(0.0, 1.0, 2)})
    assert [labels(tasks) for tasks in draw(schedule, 4, 10)] == [
        {"kuhn": 10}, {"kuhn": 5, "board": 5}, {"board": 10}, {"board": 10}
    ]  # fmt: skip
    for task in draw(schedule, 2, 10)[1]:
        spec = games[task.label]
        assert (task.environment, task.options) == (spec.name, spec.options)
        assert task.name == f"{task.label}#{task.seed}"


def test_a_mixture_is_reproducible_and_differs_between_steps_rounds_and_seeds():
    source = Mixture({"kuhn": KUHN, "board": BOARD})
    assert draw(source, 3, 8) == draw(source, 3, 8) != draw(source, 3, 8, seed=4)
    iterator = source.open(3, LETTERS)
    names = [{t.name for t in iterator.draw(step, r, 8)} for step in (0, 1) for r in (0, 1)]
    assert len(set.union(*names)) == 32
    assert iterator.metrics() == {"kuhn/fraction": 0.5, "board/fraction": 0.5}
    assert iterator.state() is None and not source.learns


def curriculum() -> Mixture:
    return Mixture(
        {"easy": KUHN, "hard": TaskSet(4, SuccessRateSampler(0.1), BOARD)},
        sampler=SuccessRateSampler(0.2, half_solved_task_probs, ema_rate=0.5),
    )


def follow(iterator: Any, steps: range, rate: Callable[[Task], float | None]) -> list[list[Task]]:
    """Draw, and observe the rate of each task."""
    out = []
    for step in steps:
        out.append(list(iterator.draw(step, 0, 12)))
        iterator.observe([rate(task) for task in out[-1]])
    return out


def test_a_curriculum_follows_success_over_environments_and_tasks():
    iterator = curriculum().open(3, LETTERS)
    solved = max(seed_of(3, 2, index) for index in range(4))  # of the hard set

    def rate(task: Task) -> float | None:
        return 1.0 if task.label == "easy" or task.seed == solved else 0.5

    follow(iterator, range(20), rate)
    late = [task for tasks in follow(iterator, range(20, 40), rate) for task in tasks]
    # "easy" is always solved, and half-solved environments come first.
    assert labels(late)["hard"] > 0.6 * len(late)
    seeds = Counter(task.seed for task in late if task.label == "hard")
    assert seeds[solved] < 0.05 * seeds.total()  # within it, unsolved tasks come first


def test_a_resumed_curriculum_draws_what_an_uninterrupted_one_draws():
    def rate(task: Task) -> float | None:
        return None if task.seed % 5 == 0 else task.seed % 3 / 2

    unbroken, first = curriculum().open(3, LETTERS), curriculum().open(3, LETTERS)
    expected = follow(unbroken, range(10), rate)
    follow(first, range(5), rate)
    state = json.loads(json.dumps(first.state()))
    second = curriculum().open(3, LETTERS)
    second.load(state)
    assert follow(second, range(5, 10), rate) == expected[5:]
    assert second.state() == unbroken.state() and set(state) == {"members", "sampler"}
    fresh = curriculum().open(3, LETTERS)
    assert follow(fresh, range(5, 10), rate) != expected[5:]  # the state matters


def test_opening_a_source_leaves_its_config_alone():
    source = curriculum()
    before = copy.deepcopy(source)
    follow(source.open(3, LETTERS), range(3), lambda task: 1.0)
    assert source == before and source.sampler is not None
    assert source.sampler.state() == {} and source.learns


def test_fixed_tasks_are_the_same_for_every_player():
    assert [t.seed for t in KUHN.fixed_tasks(3, 100, LETTERS)] == [100, 101, 102]
    assert [t.seed for t in TaskSet(2).fixed_tasks(3, 100, KUHN)] == [100, 101]
    tasks = Mixture({"kuhn": KUHN, "few": TaskSet(1, environment=BOARD)}).fixed_tasks(
        5, 100, LETTERS
    )
    assert [task.name for task in tasks] == ["kuhn#100", "few#100", "kuhn#101", "kuhn#102"]


def test_a_mixture_that_cannot_be_is_refused():
    two = {"kuhn": KUHN, "board": BOARD}
    for wrong, sentence in (
        (Mixture({}), "a weight for each of its members"),
        (Mixture(two, {"kuhn": 1.0}), "a weight for each of its members"),
        (Mixture(two, {"kuhn": 1.0, "board": 1.0}, SuccessRateSampler(1.0)), "not both"),
        (Mixture({"a/b": KUHN}), "no label"),
        (Mixture({"a#b": KUHN}), "no label"),
        (Mixture({"games": Mixture(two)}), "several environments"),
        (TaskSet(0), "at least 1 task"),
    ):
        with pytest.raises(UserError, match=sentence):
            wrong.open(0, LETTERS)
    for weights in ({"kuhn": 0, "board": 0}, {"kuhn": -1, "board": 2}):
        with pytest.raises(UserError, match="at step 7"):
            Mixture(two, weights).open(0, LETTERS).draw(7, 0, 2)


def test_the_task_sources_of_a_phase_are_those_in_its_fields():
    source = Mixture({"kuhn": KUHN})
    assert find_task_sources(Rollouts(task_source=source)) == [source]
    assert find_task_sources(Rollouts()) == [] and find_task_sources(None) == []
