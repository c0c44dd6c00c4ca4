"""R1-Code-Interpreter's stages by potential."""

import json

import numpy as np
import pytest

from agentrl_jax.algorithms.experience.potential_stages import PotentialStages, potential
from agentrl_jax.errors import UserError

RATES = [0.0, 0.5, 1.0, 0.25, 0.9, 0.6, 0.0, 1.0]  # potentials 0 1 0 .75 .36 .96 0 0


def swept(draws_per_stage: int = 2) -> PotentialStages:
    """After a sweep in draws of three, in which each task had its rate of the table."""
    sampler, rng = PotentialStages(4, draws_per_stage), np.random.default_rng(0)
    for expected in ([0, 1, 2], [3, 4, 5], [6, 7]):
        tasks = sampler.sample(8, 3, rng)
        assert tasks[: len(expected)] == expected and len(tasks) == 3
        sampler.observe(tasks, [RATES[task] for task in tasks])
    return sampler


def test_the_potential_by_hand():
    assert potential(np.array([0, 0.25, 0.5, 1])).tolist() == [0, 0.75, 1, 0]


def test_stages_begin_with_the_highest_potential_and_add_the_others():
    sampler, rng = swept(), np.random.default_rng(1)
    pools = [{task for _ in range(2) for task in sampler.sample(8, 200, rng)} for _ in range(5)]
    assert pools[:2] == [{1, 5}, {1, 5, 3, 4}]
    assert len(pools[2]) == 6 and pools[2] > pools[1]
    assert pools[3] == pools[4] == set(range(8))


def test_later_success_rates_do_not_change_the_order():
    sampler = swept()
    sampler.observe([0, 1], [0.5, 1.0])
    assert set(sampler.sample(8, 100, np.random.default_rng(2))) == {1, 5}


def test_the_rates_of_two_sweeps_are_averaged():
    sampler, rng = PotentialStages(2, 1, sweeps=2), np.random.default_rng(0)
    for rates in ([1.0, 0.0, 0.5], [0.5, 0.0, 0.5]):  # potentials .75, 0, 1
        assert sampler.sample(3, 3, rng) == [0, 1, 2]
        sampler.observe([0, 1, 2], rates)
    assert set(sampler.sample(3, 50, rng)) == {2}
    sampler.observe([1], [0.5])
    assert set(sampler.sample(3, 50, rng)) == {0, 1, 2}


def test_a_stored_sampler_goes_on_as_before():
    sampler, copy = swept(), PotentialStages(4, 2)
    sampler.sample(8, 3, np.random.default_rng(0))
    copy.load(json.loads(json.dumps(sampler.state())))
    for seed in range(4):
        draws = [x.sample(8, 5, np.random.default_rng(seed)) for x in (sampler, copy)]
        assert draws[0] == draws[1]


def test_impossible_stages_are_refused():
    with pytest.raises(UserError, match="at least 1"):
        PotentialStages(0)
