"""Instruction populations by hand: sampling, pruning, admission; groups played with an instruction;
failing proposers (INSPO).
"""

import asyncio
import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import support.letter_task  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from support.fixtures import ScriptedEngine, tiny_policy
from support.small_runs import small_experiment
from support.untimed import without_times

from agentrl_jax.algorithms.contexts.evolved_instruction import (
    EvolvedInstruction,
    InstructionEvolution,
)
from agentrl_jax.algorithms.contexts.instruction_population import (
    InstructionMember,
    InstructionPopulation,
)
from agentrl_jax.algorithms.contexts.instruction_writers import ListProposer, ReflectiveProposer
from agentrl_jax.algorithms.experience.replay import LowRewardBuffer
from agentrl_jax.context import FullHistory
from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.episode_counts import conserved_episodes
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes, load_pieces, save_pieces
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.training.evaluation import evaluation_strategy, play_all
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Group, Sampling
from agentrl_jax.workers.pool import InlinePool, Task

RENDERER = TextRenderer(byte_tokenizer())


def weighed(*means: float | None, temperature: float = 1.0) -> InstructionPopulation:
    population = InstructionPopulation([f"i{j}" for j in range(len(means))], temperature)
    for j, mean in enumerate(means):
        if mean is not None:
            population.add_returns(j, 2 * mean, 2)
    return population


def test_probabilities_by_hand():
    """w = 0 and ln 3 at temperature 1: probabilities 1/4 and 3/4."""
    assert weighed(0.0, np.log(3.0)).probabilities() == pytest.approx([0.25, 0.75])
    assert weighed(0.0, np.log(3.0) / 2, temperature=0.5).probabilities() == pytest.approx(
        [0.25, 0.75]
    )
    assert weighed(0.7, 0.7, 0.7, 0.7, temperature=0.01).probabilities().tolist() == [0.25] * 4
    assert weighed(0.1, 0.9, 0.9, temperature=0.0).probabilities().tolist() == [0.0, 0.5, 0.5]
    assert weighed(0.1, 0.9, temperature=1e-9).probabilities().tolist() == [0.0, 1.0]
    assert weighed(None, None, temperature=0.0).probabilities().tolist() == [0.5, 0.5]
    assert weighed(0.2, None, 0.6).weights().tolist() == [
        0.2,
        0.6,
        0.6,
    ]  # an instruction without episodes counts as the best


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.floats(0, 1e3))
def test_probabilities_sum_to_one_and_follow_the_weights(means: list[float], temperature: float):
    population = weighed(*means, temperature=temperature)
    shares = population.probabilities()
    assert shares.sum() == pytest.approx(1.0) and (shares >= 0).all()
    order = np.argsort(means)
    assert (np.diff(shares[order]) >= 0).all()


def test_halves_are_pruned_and_never_sampled_again():
    population = weighed(0.4, 0.1, 0.3, None, 0.1, temperature=10.0)
    assert population.prune() == [4, 1] and population.living_ids == [
        0,
        2,
        3,
    ]  # of equal ones the newer first
    rng = np.random.default_rng(0)
    assert {population.draw(rng) for _ in range(200)} == {0, 2, 3}
    assert (
        population.prune() == [2] and population.prune() == [] and population.living_ids == [0, 3]
    )  # without episodes: it stays
    population.add_returns(3, 0.0, 1)
    assert population.prune() == [3] and population.prune() == [] and population.living_ids == [0]


def test_only_new_texts_are_proposals():
    population = weighed(0.0, 0.0)
    population.members[1].alive = False
    hostile: list[Any] = [
        "i0",
        " i1 ",
        "",
        "   ",
        None,
        7,
        "x" * 11,
        "new",
        "new ",
        "\ud800",
        "more",
    ]
    assert population.filter_new(hostile, 9, max_length=10) == ["new", "?", "more"]
    assert population.filter_new(hostile, 1, max_length=10) == ["new"]


def test_the_best_trials_are_admitted():
    population = weighed(0.5, 0.3)
    trials = [
        ("worse", 0.4, 2),
        ("good", 1.2, 2),
        ("best", 1.8, 2),
        ("never played", 0.0, 0),
        ("as good", 1.2, 2),
    ]
    assert population.admit(trials, 2) == [2, 3]
    assert [m.text for m in population.members[2:]] == ["best", "good"] and population.members[
        2
    ].mean == 0.9
    assert population.admit([("late", 9.0, 1)], 0) == [] and len(population.members) == 4


def test_an_invalid_population_is_refused():
    for texts, temperature in (([], 1.0), (["a", "a"], 1.0), (["a"], -1.0)):
        with pytest.raises(UserError, match="different instructions"):
            InstructionPopulation(texts, temperature)
    with pytest.raises(UserError, match="at least 1"):
        evolution(ListProposer(()), prune_every=0)


# Rollouts


class Obedient(ScriptedEngine):
    """Copies the prompt's last word if the prompt contains the word "right", else writes "?".

    `LetterEnvironment` rewards repeating the letter of its observation.
    """

    def submit(self, ids: np.ndarray, *more: Any, **named: Any) -> Any:
        text = bytes(ids.tolist()).decode()
        self._action = np.frombuffer(
            f"{text.split()[-1] if 'right' in text else '?'}\n".encode(), np.uint8
        ).astype(np.int32)
        return super().submit(ids, *more, **named)


def evolution(proposer: Any, **fields: Any) -> InstructionEvolution:
    return InstructionEvolution(
        **{
            "proposer": proposer,
            "prune_every": 2,
            "num_candidates": 2,
            "proxy_episodes": 3,
            "failure_buffer": LowRewardBuffer(4, 1.0),
            **fields,
        }
    )


def trained(
    strategy: Any,
    steps: int = 4,
    first: int = 0,
    engine: Any = None,
    count: int = 3,
    timeouts: Timeouts = Timeouts(30.0, 60.0, 90.0, 500.0),  # noqa: B008
) -> list[list[Group]]:
    """The groups of each step, collected as a rollout source does."""
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
    engine, steps_groups, is_evolved = (
        engine or Obedient(RENDERER, ""),
        [],
        isinstance(strategy, EvolvedInstruction),
    )
    with Runtime({"policy": engine}, {"policy": agent}, InlinePool(), timeouts=timeouts) as runtime:
        for step in range(first, first + steps):
            tasks = [
                Task("support.letter_task:tests/Letters-v0", 10 * step + i, group=i)
                for i in range(count)
            ]
            before = runtime.episode_counts.totals
            groups = runtime.collect(strategy, tasks, (0, step))
            assert conserved_episodes(runtime.episode_counts.totals.since(before), groups).holds
            if is_evolved:
                strategy.update([strategy.summarize(groups)])
            steps_groups.append(groups)
        strategy.failed = runtime.failures.total
    return steps_groups


def instructions_of(groups: Sequence[Group]) -> list[Any]:
    return [
        {turn.info["instruction"] for t in group.trajectories for turn in t.turns}
        for group in groups
    ]


def test_one_empty_instruction_is_independent_episodes():
    strategy = EvolvedInstruction(InstructionPopulation([""], 1.0), group_size=2)
    for groups, plain_groups in zip(
        trained(strategy, 2), trained(IndependentEpisodes(2), 2), strict=True
    ):
        for a, b in zip(
            (t for g in groups for t in g.trajectories),
            (t for g in plain_groups for t in g.trajectories),
            strict=True,
        ):
            assert [c.key for c in a.calls] == [c.key for c in b.calls] and a.messages == b.messages
            assert all(
                x.prompt.tolist() == y.prompt.tolist() and x.sampling == y.sampling
                for x, y in zip(a.calls, b.calls, strict=True)
            )


def test_a_group_plays_with_one_instruction_and_the_better_one_is_sampled_more_often():
    strategy = EvolvedInstruction(
        InstructionPopulation(["be wrong", "be right"], 0.1), group_size=2
    )
    steps = trained(strategy, 6)
    assert all(len(numbers) == 1 for step in steps for numbers in instructions_of(step))
    for group in (group for step in steps for group in step):
        (number,) = instructions_of([group])[0]
        text = strategy.population.members[number].text
        for t in group.trajectories:
            assert bytes(t.calls[0].prompt.tolist()).decode().startswith(
                text + "\n"
            ) and t.total_reward == (3.0 if number else 0.0)
    assert [m.mean for m in strategy.population.members] == [0.0, 3.0]
    assert all(
        numbers == {1}
        for step in trained(strategy, 3, first=6)
        for numbers in instructions_of(step)
    )


def test_evaluation_uses_the_instruction_with_the_highest_return(tmp_path: Path):
    """Also when it starts from the folder of a finished run."""
    strategy = EvolvedInstruction(
        InstructionPopulation(["be right", "be wrong", "unused"], 0.1), group_size=2
    )
    for number, total in ((0, 2.0), (1, 3.0)):
        strategy.population.add_returns(number, total, 2)
    experiment = small_experiment(Rollouts(1, strategy))
    keeper = PhaseCheckpointer(tmp_path / "checkpoints" / "rl")
    feed = {"strategy": json.loads(json.dumps(save_pieces(strategy)))}
    state = TrainState(
        step=jnp.int32(1),
        params={"a": jnp.zeros(1)},
        opt_state=(jnp.zeros(1),),
        key=jax.random.key(0),
    )
    keeper.save(1, state, {"feed": feed})
    keeper.close()
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
    fresh = small_experiment(
        Rollouts(
            1,
            EvolvedInstruction(
                InstructionPopulation(["be right", "be wrong", "unused"], 0.1), group_size=2
            ),
        )
    )
    with Runtime({"policy": Obedient(RENDERER, "")}, {"policy": agent}, InlinePool()) as runtime:
        policy_strategy = evaluation_strategy(fresh, tmp_path, "rl", tiny_policy(), None)
        tasks = experiment.environment.fixed_tasks(3, 5, experiment.environment)
        trajectories = play_all(runtime, tasks, 5, policy_strategy=policy_strategy)
    assert {turn.info["instruction"] for t in trajectories for turn in t.turns} == {1} and [
        t.sample for t in trajectories
    ] == [0] * 3
    assert strategy.population.living_ids == [0, 1, 2]
    assert InstructionPopulation(["a", "b"], 1.0).best() == 0  # no episodes of either


def test_new_instructions_are_admitted_only_after_verification():
    engine = Obedient(RENDERER, "")
    evolving = evolution(ListProposer(["bad idea", "be right", "unused"]))
    strategy = EvolvedInstruction(
        InstructionPopulation(["wrong", "worse"], 0.1), 2, evolution=evolving
    )
    trained(strategy, 2, engine=engine)
    assert strategy.population.living_ids == [0] and len(evolving.failure_buffer) == 4
    assert [t.calls for t in evolving.failure_buffer.sample(4, np.random.default_rng(0))] == [
        ()
    ] * 4
    before = engine.num_submitted
    (groups,) = trained(strategy, 1, first=2, engine=engine)
    assert (
        engine.num_submitted - before == 3 * 2 * 3 + 2 * 3 * 3
    )  # the groups' turns, and those of two candidates in three environments
    assert [group.discarded_turns for group in groups] == [2 * 3 * 3, 0, 0]
    assert instructions_of(groups) == [{0}] * 3
    members = strategy.population.members
    assert [(m.text, m.alive) for m in members] == [
        ("wrong", True),
        ("worse", False),
        ("be right", True),
    ]
    assert (members[2].mean, members[2].episodes) == (3.0, 3)
    assert all(number == {2} for number in instructions_of(trained(strategy, 1, first=3)[0]))


def test_a_restored_state_continues_exactly_and_is_equal_in_all_processes():
    def fresh() -> EvolvedInstruction:
        return EvolvedInstruction(
            InstructionPopulation(["wrong", "worse", "right"], 1.0),
            2,
            evolution=evolution(ListProposer(["be right", "so right"])),
        )

    unbroken, first, second = fresh(), fresh(), fresh()
    expected = trained(unbroken, 6)
    trained(first, 3)
    load_pieces(second, json.loads(json.dumps(save_pieces(first))))
    resumed = trained(second, 3, first=3)
    assert [instructions_of(step) for step in resumed] == [
        instructions_of(step) for step in expected[3:]
    ]
    # the strategy's own, the population's, the failure buffer's
    assert len(save_pieces(unbroken)) == 3
    assert without_times(save_pieces(second)) == without_times(save_pieces(unbroken))
    single, split = copy.deepcopy(unbroken), copy.deepcopy(unbroken)
    groups = [
        Group(g.task, tuple(t.replace(group=i) for t in g.trajectories))
        for i, g in enumerate(expected[-1])
    ]
    single.update([single.summarize(groups)])
    split.update([json.loads(json.dumps(split.summarize(groups[p::2]))) for p in range(2)])
    assert save_pieces(single) == save_pieces(split)


class Hostile:
    """A proposer that fails in a given way."""

    def __init__(self, how: str) -> None:
        self.how = how

    async def propose(self, *_: Any) -> Any:
        if self.how == "raises":
            raise ZeroDivisionError("no idea")
        if self.how == "hangs":
            await asyncio.sleep(60)
        return {
            "none": None,
            "numbers": [1, 2],
            "empty": ["", " "],
            "endless": ["x" * 10**6],
            "special": ["<eos>\x00", "{0}%s"],
        }[self.how]


@pytest.mark.parametrize(
    "how", ["raises", "hangs", "none", "numbers", "empty", "endless", "special"]
)
def test_a_hostile_proposer_never_stalls_the_run(how: str):
    strategy: Any = EvolvedInstruction(
        InstructionPopulation(["right", "so right"], 0.1),
        2,
        evolution=evolution(Hostile(how), prune_every=1),
    )
    steps = trained(strategy, 3, timeouts=Timeouts(0.3, 0.6, 0.9, 5.0))
    assert [[len(group.trajectories) for group in step] for step in steps] == [[2] * 3] * 3
    assert len(strategy.population.living_ids) == 1 and [
        m.text for m in strategy.population.members
    ] == ["right", "so right"]
    assert strategy.failed == (2 if how in ("raises", "hangs", "none") else 0)


def test_an_agent_of_the_runtime_writes_instructions_from_failures():
    engine = ScriptedEngine(RENDERER, "be right")
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=20))
    strategy = EvolvedInstruction(
        InstructionPopulation(["wrong"], 1.0),
        2,
        evolution=evolution(ReflectiveProposer(max_characters=12)),
    )
    (groups,) = trained(strategy, 1)
    members = [
        InstructionMember("wrong", 1.0, 2),
        InstructionMember("better", 3.0, 2),
        InstructionMember("gone", 9.0, 1, alive=False),
    ]
    with Runtime({"policy": engine}, {"policy": agent}, InlinePool()) as runtime:
        texts = runtime.run(
            ReflectiveProposer(max_characters=12).propose(
                members, groups[0].trajectories, 3, runtime, (0, 0, 0, -2)
            )
        )
    assert texts == ["be right"] * 3 and engine.held_calls == []
    prompt = bytes(engine.prompts[0].tolist()).decode()
    assert prompt.startswith("Instruction: better\nFailed:\n") and prompt.endswith(
        "Write a better instruction, and nothing else.\n"
    )
    assert prompt.count("Failed:\n") == 2
