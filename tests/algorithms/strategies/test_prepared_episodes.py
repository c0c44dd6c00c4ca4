"""`PreparedEpisodes`: what one agent ends with is a reset option of the other's episodes."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium
import pytest
from support.strategy_runs import AGENT, KEY, KeyedTextEngine, ListEngine, make_runtime

from agentrl_jax.algorithms.strategies.prepared_episodes import PreparedEpisodes
from agentrl_jax.environment import Environment
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user
from agentrl_jax.rollout.named_models import Model
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.task_source import EnvironmentSpec
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import Task


class Hinting(Environment):
    """One turn: its words are the hint; "?" has none."""

    scripted_policies: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, split: str = "train", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.split = split

    def _reset(self, options: dict[str, Any]) -> Any:
        return (user(f"{self.split}\n"),), {}

    def _step(self, text: str) -> Any:
        info = {"success": True} | ({"hint": f"{self.split} {text}"} if text != "?" else {})
        return (), 1.0, True, False, info


class Hinted(Environment):
    """One turn, after the hint of the reset options."""

    scripted_policies: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, split: str = "train", render_mode: str | None = None) -> None:
        super().__init__(render_mode)

    def _reset(self, options: dict[str, Any]) -> Any:
        return (user(f"{options.get('hint', 'none')}\n"),), {}

    def _step(self, text: str) -> Any:
        return (), 0.0, True, False, {"success": False}


kind: Any
for kind in (Hinting, Hinted):
    if f"tests/{kind.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(
            f"tests/{kind.__name__}-v0", lambda kind=kind, **options: kind(**options)
        )
HELPER = dataclasses.replace(AGENT, name="helper", engine="helper", trainable=False)


def collect(answer: str, strategy: PreparedEpisodes) -> Group:
    with make_runtime(KeyedTextEngine(("x", "y"))) as runtime:
        runtime.add_model("helper", Model(HELPER, ListEngine(answer)))
        task = Task("tests/Hinted-v0", 1, {"split": "test"})
        (group,) = runtime.collect(strategy, [task], KEY)
    return group


def strategy_of(**fields: Any) -> PreparedEpisodes:
    spec = EnvironmentSpec("tests/Hinting-v0")
    return PreparedEpisodes(IndependentEpisodes(4), spec, "helper", "hint", **fields)


def test_the_answer_is_a_reset_option_of_all_episodes():
    group = collect("go", strategy_of(shared=("split",)))
    assert [t.opening[0].text for t in group.trajectories] == ["test go\n"] * 4
    assert {t.agent for t in group.trajectories} == {"policy"}
    assert (group.discarded_turns, group.num_turns_played, group.num_dropped) == (1, 5, 0)
    assert {t.turns[-1].info["prepared"] for t in group.trajectories} == {"test go"}
    assert {t.turns[-1].action.text for t in group.trajectories} == {"x", "y"}
    assert collect("go", strategy_of()).trajectories[0].opening[0].text == "train go\n"


def test_without_an_answer_the_task_is_played_as_it_is():
    group = collect("?", strategy_of())
    assert [t.opening[0].text for t in group.trajectories] == ["none\n"] * 4
    assert {t.turns[-1].info["prepared"] for t in group.trajectories} == {None}


def test_it_needs_to_know_what_prepares():
    with pytest.raises(UserError, match="preparation"):
        collect("go", PreparedEpisodes(IndependentEpisodes(1)))
