"""Instructions: how they are drawn, pruned and joined by hand; groups that play under them; proposers that are hostile (INSPO)."""

import asyncio
import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import letters  # noqa: F401
import numpy as np
import pytest
from hand_made import ScriptedEngine, minute_policy
from hypothesis import given
from hypothesis import strategies as st
from small_runs import small_run

from agentrl_jax.algorithms.contexts.instructed import Evolution, Instructed
from agentrl_jax.algorithms.contexts.population import Member, Population
from agentrl_jax.algorithms.contexts.proposers import FromList, Reflecting
from agentrl_jax.algorithms.experience_replay import LowReward
from agentrl_jax.checkpoint import Keeper
from agentrl_jax.context import FullHistory
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import UserError
from agentrl_jax.evaluation import play_all, strategy_of
from agentrl_jax.experiment import Rollouts
from agentrl_jax.learner import TrainState
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent, Remembering, Stateful, found
from agentrl_jax.trajectories import Group, Sampling
from agentrl_jax.workers import InProcess, Task

RENDERER = TextRenderer(byte_tokenizer())


def weighed(*means: float | None, temperature: float = 1.0) -> Population:
    population = Population([f"i{j}" for j in range(len(means))], temperature)
    for j, mean in enumerate(means):
        if mean is not None:
            population.earned(j, 2 * mean, 2)
    return population


def test_probabilities_by_hand():
    """w = 0 and ln 3 at temperature 1: a quarter and three."""
    assert weighed(0.0, np.log(3.0)).probabilities() == pytest.approx([0.25, 0.75])
    assert weighed(0.0, np.log(3.0) / 2, temperature=0.5).probabilities() == pytest.approx([0.25, 0.75])
    assert weighed(0.7, 0.7, 0.7, 0.7, temperature=0.01).probabilities().tolist() == [0.25] * 4
    assert weighed(0.1, 0.9, 0.9, temperature=0.0).probabilities().tolist() == [0.0, 0.5, 0.5]
    assert weighed(0.1, 0.9, temperature=1e-9).probabilities().tolist() == [0.0, 1.0]
    assert weighed(None, None, temperature=0.0).probabilities().tolist() == [0.5, 0.5]
    assert weighed(0.2, None, 0.6).weights().tolist() == [0.2, 0.6, 0.6]  # what was never played counts as the best


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.floats(0, 1e3))
def test_probabilities_sum_to_one_and_follow_the_weights(means: list[float], temperature: float):
    population = weighed(*means, temperature=temperature)
    shares = population.probabilities()
    assert shares.sum() == pytest.approx(1.0) and (shares >= 0).all()
    order = np.argsort(means)
    assert (np.diff(shares[order]) >= 0).all()


def test_halves_are_pruned_and_never_drawn_again():
    population = weighed(0.4, 0.1, 0.3, None, 0.1, temperature=10.0)
    assert population.prune() == [4, 1] and population.living == [0, 2, 3]  # of equals the newer first
    rng = np.random.default_rng(0)
    assert {population.draw(rng) for _ in range(200)} == {0, 2, 3}
    assert population.prune() == [2] and population.prune() == [] and population.living == [0, 3]  # never played: it stays
    population.earned(3, 0.0, 1)
    assert population.prune() == [3] and population.prune() == [] and population.living == [0]


def test_only_new_texts_are_proposals():
    population = weighed(0.0, 0.0)
    population.members[1].alive = False
    hostile: list[Any] = ["i0", " i1 ", "", "   ", None, 7, "x" * 11, "new", "new ", "\ud800", "more"]
    assert population.fresh(hostile, 9, longest=10) == ["new", "?", "more"]
    assert population.fresh(hostile, 1, longest=10) == ["new"]


def test_who_earned_enough_takes_a_free_place():
    population = weighed(0.5, 0.3)
    trials = [("worse", 0.4, 2), ("good", 1.2, 2), ("best", 1.8, 2), ("never played", 0.0, 0), ("as good", 1.2, 2)]
    assert population.admit(trials, 2) == [2, 3]
    assert [m.text for m in population.members[2:]] == ["best", "good"] and population.members[2].mean == 0.9
    assert population.admit([("late", 9.0, 1)], 0) == [] and len(population.members) == 4


def test_a_population_that_makes_no_sense_is_refused():
    for texts, temperature in (([], 1.0), (["a", "a"], 1.0), (["a"], -1.0)):
        with pytest.raises(UserError, match="different instructions"):
            Population(texts, temperature)
    with pytest.raises(UserError, match="at least 1"):
        evolution(FromList(()), every=0)


# Played


class Obedient(ScriptedEngine):
    """Says "a" where the prompt holds the word "right", else something wrong; `Letters` pays for the letter that it shows."""

    def submit(self, ids: np.ndarray, *more: Any, **named: Any) -> Any:
        text = bytes(ids.tolist()).decode()
        self._action = np.frombuffer(f"{text.split()[-1] if 'right' in text else '?'}\n".encode(), np.uint8).astype(np.int32)
        return super().submit(ids, *more, **named)


def evolution(proposer: Any, **fields: Any) -> Evolution:
    return Evolution(**{"proposer": proposer, "every": 2, "candidates": 2, "proxy": 3, "failures": LowReward(4, 1.0), **fields})


def trained(strategy: Any, steps: int = 4, first: int = 0, engine: Any = None, count: int = 3) -> list[list[Group]]:
    """What the strategy collects in each step, as a feed has it collect: (groups a step)."""
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
    engine, found, remembers = engine or Obedient(RENDERER, ""), [], isinstance(strategy, Instructed)
    with Runtime({"policy": engine}, {"policy": agent}, InProcess(), deadlines=Deadlines(0.3, 0.6, 0.9, 5.0)) as runtime:
        for step in range(first, first + steps):
            tasks = [Task("letters:tests/Letters-v0", 10 * step + i, group=i) for i in range(count)]
            groups = runtime.collect(strategy, tasks, (0, step))
            if remembers:
                strategy.learn([strategy.tell(groups)])
            found.append(groups)
        strategy.failed = runtime.failures.total
    return found


def played_under(groups: Sequence[Group]) -> list[Any]:
    return [{turn.info["instruction"] for t in group.trajectories for turn in t.turns} for group in groups]


def test_one_empty_instruction_is_independent_play():
    strategy = Instructed(Population([""], 1.0), group_size=2)
    assert isinstance(strategy, Remembering)
    for mine, theirs in zip(trained(strategy, 2), trained(Independent(2), 2), strict=True):
        for a, b in zip((t for g in mine for t in g.trajectories), (t for g in theirs for t in g.trajectories), strict=True):
            assert [c.key for c in a.calls] == [c.key for c in b.calls] and a.messages == b.messages
            assert all(x.prompt.tolist() == y.prompt.tolist() and x.sampling == y.sampling for x, y in zip(a.calls, b.calls, strict=True))


def test_a_group_plays_under_one_instruction_and_the_better_is_drawn_more():
    strategy = Instructed(Population(["be wrong", "be right"], 0.1), group_size=2)
    steps = trained(strategy, 6)
    assert all(len(numbers) == 1 for step in steps for numbers in played_under(step))
    for group in (group for step in steps for group in step):
        (number,) = played_under([group])[0]
        text = strategy.population.members[number].text
        for t in group.trajectories:
            assert bytes(t.calls[0].prompt.tolist()).decode().startswith(text + "\n") and t.total_reward == (3.0 if number else 0.0)
    assert [m.mean for m in strategy.population.members] == [0.0, 3.0]
    assert all(numbers == {1} for step in trained(strategy, 3, first=6) for numbers in played_under(step))


def test_what_was_trained_is_judged_under_the_instruction_that_earned_most(tmp_path: Path):
    """Also where it starts from the folder of a run that has ended."""
    strategy = Instructed(Population(["be right", "be wrong", "unused"], 0.1), group_size=2)
    for number, total in ((0, 2.0), (1, 3.0)):
        strategy.population.earned(number, total, 2)
    experiment = small_run(Rollouts(1, strategy))
    keeper = Keeper(tmp_path / "checkpoints" / "rl")
    feed = {"strategy": json.loads(json.dumps(states(strategy)))}
    state = TrainState(step=jnp.int32(1), params={"a": jnp.zeros(1)}, opt_state=(jnp.zeros(1),), key=jax.random.key(0))
    keeper.save(1, state, {"feed": feed})
    keeper.close()
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
    fresh = small_run(Rollouts(1, Instructed(Population(["be right", "be wrong", "unused"], 0.1), group_size=2)))
    with Runtime({"policy": Obedient(RENDERER, "")}, {"policy": agent}, InProcess()) as runtime:
        how = strategy_of(fresh, tmp_path, "rl", runtime, minute_policy(), None)
        played = play_all(runtime, experiment.environment, 3, 5, how=how)
    assert {turn.info["instruction"] for t in played for turn in t.turns} == {1} and [t.sample for t in played] == [0] * 3
    assert strategy.population.living == [0, 1, 2]
    assert Population(["a", "b"], 1.0).best() == 0  # none was played


def test_new_instructions_enter_only_after_they_were_verified():
    engine = Obedient(RENDERER, "")
    evolving = evolution(FromList(["bad idea", "be right", "unused"]))
    strategy = Instructed(Population(["wrong", "worse"], 0.1), 2, evolution=evolving)
    trained(strategy, 2, engine=engine)
    assert strategy.population.living == [0] and len(evolving.failures) == 4
    assert [t.calls for t in evolving.failures.draw(4, np.random.default_rng(0))] == [()] * 4
    before = engine.submitted
    (groups,) = trained(strategy, 1, first=2, engine=engine)
    assert engine.submitted - before == 3 * 2 * 3 + 2 * 3 * 3  # the groups' turns, and those of two candidates in three worlds
    assert played_under(groups) == [{0}] * 3
    members = strategy.population.members
    assert [(m.text, m.alive) for m in members] == [("wrong", True), ("worse", False), ("be right", True)]
    assert (members[2].mean, members[2].episodes) == (3.0, 3)
    assert all(number == {2} for number in played_under(trained(strategy, 1, first=3)[0]))


def states(strategy: Instructed) -> list[Any]:
    return [piece.state() for piece in found(Stateful, strategy)]


def test_what_it_remembers_goes_on_exactly_and_does_not_depend_on_processes():
    def fresh() -> Instructed:
        return Instructed(Population(["wrong", "worse", "right"], 1.0), 2, evolution=evolution(FromList(["be right", "so right"])))

    whole, first, second = fresh(), fresh(), fresh()
    expected = trained(whole, 6)
    trained(first, 3)
    for piece, saved in zip(found(Stateful, second), json.loads(json.dumps(states(first))), strict=True):
        piece.load(saved)
    played = trained(second, 3, first=3)
    assert [played_under(step) for step in played] == [played_under(step) for step in expected[3:]]
    assert states(second) == states(whole) and len(states(whole)) == 3  # its own, the population's, the failures'
    one, two = copy.deepcopy(whole), copy.deepcopy(whole)
    groups = [Group(g.task, tuple(t.replace(group=i) for t in g.trajectories)) for i, g in enumerate(expected[-1])]
    one.learn([one.tell(groups)])
    two.learn([json.loads(json.dumps(two.tell(groups[p::2]))) for p in range(2)])
    assert states(one) == states(two)


class Hostile:
    """A proposer that misbehaves."""

    def __init__(self, how: str) -> None:
        self.how = how

    async def propose(self, *_: Any) -> Any:
        if self.how == "raises":
            raise ZeroDivisionError("no idea")
        if self.how == "hangs":
            await asyncio.sleep(60)
        return {"none": None, "numbers": [1, 2], "empty": ["", " "], "endless": ["x" * 10**6], "special": ["<eos>\x00", "{0}%s"]}[self.how]


@pytest.mark.parametrize("how", ["raises", "hangs", "none", "numbers", "empty", "endless", "special"])
def test_a_hostile_proposer_never_stalls_the_run(how: str):
    strategy: Any = Instructed(Population(["right", "so right"], 0.1), 2, evolution=evolution(Hostile(how), every=1))
    steps = trained(strategy, 3)
    assert [[len(group.trajectories) for group in step] for step in steps] == [[2] * 3] * 3
    assert len(strategy.population.living) == 1 and [m.text for m in strategy.population.members] == ["right", "so right"]
    assert strategy.failed == (2 if how in ("raises", "hangs", "none") else 0)


def test_an_agent_of_the_runtime_reflects_on_failures():
    engine = ScriptedEngine(RENDERER, "be right")
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=20))
    strategy = Instructed(Population(["wrong"], 1.0), 2, evolution=evolution(Reflecting(characters=12)))
    (groups,) = trained(strategy, 1)
    members = [Member("wrong", 1.0, 2), Member("better", 3.0, 2), Member("gone", 9.0, 1, alive=False)]
    with Runtime({"policy": engine}, {"policy": agent}, InProcess()) as runtime:
        texts = runtime.run(Reflecting(characters=12).propose(members, groups[0].trajectories, 3, runtime, (0, 0, 0, -2)))
    assert texts == ["be right"] * 3 and engine.held == []
    prompt = bytes(engine.prompts[0].tolist()).decode()
    assert prompt.startswith("Instruction: better\nFailed:\n") and prompt.endswith("Write a better instruction, and nothing else.\n")
    assert prompt.count("Failed:\n") == 2
