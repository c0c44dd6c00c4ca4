"""Links: which turns they hold, what is weighed, and that values learn from them what they learn from whole episodes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hand_made import evidence_of, make_call, make_trajectory, make_turn

from agentrl_jax.algorithms.chained import LinkFeed, first_turns
from agentrl_jax.algorithms.token_values import Expectile, Read
from agentrl_jax.trajectories import Group, Trajectory


def episode(number: int, turns: int) -> Trajectory:
    """Each turn has a row of its own, an action of two tokens and the reward of its number."""
    return make_trajectory(*(make_turn([make_call([number, i], [7, 8])], reward=i, terminated=i == turns - 1) for i in range(turns)))


@dataclass
class Same:
    """A feed that always gives the same."""

    groups: list[Group]

    def next(self, step: int) -> list[Group]:
        return self.groups

    def state(self) -> Any:
        return 5

    def load(self, state: Any) -> None: ...


def test_links_are_turns_with_their_next_and_follow_from_the_step():
    feed = LinkFeed(Same([Group("a", (episode(0, 3),)), Group("b", (episode(1, 1),))]), 400, 9)
    links = [group.trajectories[0] for group in feed.next(3)]
    names = [tuple(tuple(turn.calls[0].prompt.tolist()) for turn in link.turns) for link in links]
    shares = {name: names.count(name) / 400 for name in names}
    expected = {((0, 0), (0, 1)): 1 / 6, ((0, 1), (0, 2)): 1 / 6, ((0, 2),): 1 / 6, ((1, 0),): 1 / 2}  # episodes are equally likely
    assert shares == pytest.approx(expected, abs=0.07)
    again = [group.trajectories[0].turns for group in feed.next(3)]
    assert [turns[0] for turns in again] == [link.turns[0] for link in links] and feed.next(4)[0].trajectories[0] is not links[0]
    assert feed.state() == 5


def test_the_first_turns_of_links_have_the_goals_of_the_whole_episode():
    whole, feed = episode(0, 4), LinkFeed(Same([Group("a", (episode(0, 4),))]), 20, 0)
    evidence, links = evidence_of([Group("a", (whole,))]), feed.next(0)
    v = np.arange(8.0) ** 2
    goals = Expectile(0.9)(evidence, lambda: Read(v, v, v)).q.reshape(4, 2)
    parts = evidence_of(links)
    places = [int(turn.calls[0].prompt[1]) for group in links for turn in group.trajectories[0].turns]
    own = np.concatenate([v.reshape(4, 2)[place] for place in places])
    weight = first_turns(parts)
    found = Expectile(0.9)(parts, lambda: Read(own, own, own)).q
    first = [int(group.trajectories[0].turns[0].calls[0].prompt[1]) for group in links]
    assert np.allclose(found[weight > 0].reshape(-1, 2), goals[first]) and np.allclose(weight[weight > 0], 1 / 40)
