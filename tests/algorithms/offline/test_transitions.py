"""Turn transitions: which turns they contain, their weights, and that their value targets are those
of whole episodes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.fixtures import make_call, make_credit_inputs, make_trajectory, make_turn

from agentrl_jax.algorithms.offline.token_value_targets import ExpectileTarget, TokenValueReadout
from agentrl_jax.algorithms.offline.transitions import TurnTransitionIterator, first_turn_mean
from agentrl_jax.training.config import ExperienceIterator
from agentrl_jax.trajectories import Group, Trajectory


def episode(number: int, turns: int) -> Trajectory:
    """Turn i is a separate sequence with an action of two tokens and reward i."""
    return make_trajectory(
        *(
            make_turn([make_call([number, i], [7, 8])], reward=i, terminated=i == turns - 1)
            for i in range(turns)
        )
    )


@dataclass
class ConstantExperience(ExperienceIterator):
    """The same groups at every step."""

    groups: list[Group]

    def next(self, step: int) -> list[Group]:
        return self.groups

    def state(self) -> Any:
        return 5


def test_transitions_are_turns_with_their_successors_and_depend_on_the_step():
    groups = [Group("a", (episode(0, 3),)), Group("b", (episode(1, 1),))]
    iterator = TurnTransitionIterator(ConstantExperience(groups), 400, 9)
    transitions = [group.trajectories[0] for group in iterator.next(3)]
    names = [tuple(tuple(turn.calls[0].prompt.tolist()) for turn in x.turns) for x in transitions]
    frequencies = {name: names.count(name) / 400 for name in names}
    expected = {
        ((0, 0), (0, 1)): 1 / 6,
        ((0, 1), (0, 2)): 1 / 6,
        ((0, 2),): 1 / 6,
        ((1, 0),): 1 / 2,
    }  # every episode has the same probability
    assert frequencies == pytest.approx(expected, abs=0.07)
    again = [group.trajectories[0].turns for group in iterator.next(3)]
    assert [turns[0] for turns in again] == [x.turns[0] for x in transitions]
    assert iterator.next(4)[0].trajectories[0] is not transitions[0]
    assert iterator.state() == 5


def test_the_first_turns_of_transitions_have_the_targets_of_the_whole_episode():
    groups = [Group("a", (episode(0, 4),))]
    transitions = TurnTransitionIterator(ConstantExperience(groups), 20, 0).next(0)
    v, target = np.arange(8.0) ** 2, ExpectileTarget(0.9)
    unsplit = target(make_credit_inputs(groups), lambda: TokenValueReadout(v, v, v)).q.reshape(4, 2)
    credit_inputs = make_credit_inputs(transitions)
    turns = [
        int(turn.calls[0].prompt[1])
        for group in transitions
        for turn in group.trajectories[0].turns
    ]
    values = np.concatenate([v.reshape(4, 2)[turn] for turn in turns])
    weight = first_turn_mean(credit_inputs)
    q = target(credit_inputs, lambda: TokenValueReadout(values, values, values)).q
    first = [int(group.trajectories[0].turns[0].calls[0].prompt[1]) for group in transitions]
    assert np.allclose(q[weight > 0].reshape(-1, 2), unsplit[first])
    assert np.allclose(weight[weight > 0], 1 / 40)
