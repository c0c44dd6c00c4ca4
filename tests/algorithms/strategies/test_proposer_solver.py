"""`ProposerSolver`: rewards of both roles, the check, the pool, and advantages by role."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from support.strategy_runs import AGENT, KEY, KeyedTextEngine, ListEngine, make_runtime

from agentrl_jax.algorithms.advantages.group import GroupedBy
from agentrl_jax.algorithms.strategies.proposer_solver import (
    AnswerableCheck,
    ProposerSolver,
    group_or_proposers,
    intermediate_difficulty,
    is_proposal,
)
from agentrl_jax.environment import Environment
from agentrl_jax.envs.search.protocols import PROPOSER
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.rollout.call_records import placed_calls, recorded_rewards
from agentrl_jax.rollout.named_models import Model
from agentrl_jax.training.task_source import EnvironmentSpec
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.workers.pool import Task


class Asking(Environment):
    """One turn: a text with a question mark is a valid question, its answer the seed's parity."""

    scripted_policies: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def _reset(self, options: dict[str, Any]) -> Any:
        self.gold = str(int(self.np_random.integers(2)))
        return (user(f"{self.gold}\n"),), {}

    def _step(self, text: str) -> Any:
        valid = text.endswith("?")
        info = {"valid": valid, "answer": text, "gold": self.gold, "success": valid}
        return (user("seen\n"),), float(valid), True, False, info


class Solving(Environment):
    """One turn: the answer of the question that is given."""

    scripted_policies: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def _reset(self, options: dict[str, Any]) -> Any:
        question, self.gold = options["question"]
        return (user(f"{question}\n"),), {}

    def _step(self, text: str) -> Any:
        right = text == self.gold
        return (), float(right), True, False, {"success": right}


kind: Any
for kind in (Asking, Solving):
    if f"tests/{kind.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(
            f"tests/{kind.__name__}-v0", lambda kind=kind, **options: kind(**options)
        )
ASKING, SOLVING = "tests/Asking-v0", EnvironmentSpec("tests/Solving-v0")
READER = dataclasses.replace(AGENT, name="reader", engine="reader", trainable=False)


def exact(answer: str, golds: Sequence[str]) -> float:
    return float(answer in golds)


def proposal_documents(trajectory: Trajectory) -> list[str]:
    return [f"by {trajectory.turns[-1].action.text}"]


def prompt(question: str, documents: Sequence[str]) -> list[Message]:
    return [user("".join(f"{text}\n" for text in (*documents, question)))]


def collect(strategy: ProposerSolver, texts: Sequence[str], answers: Sequence[str] = ()) -> Group:
    """The group of a task: a proposal, then solvers, by texts that are drawn by the calls' keys."""
    reader = ListEngine(*answers)
    with make_runtime(KeyedTextEngine(texts)) as runtime:
        runtime.add_model("reader", Model(READER, reader))
        (group,) = runtime.collect(strategy, [Task(ASKING, 1)], KEY)
    return group


def roles(group: Group) -> tuple[list[Trajectory], list[Trajectory]]:
    assert placed_calls([group]).holds and recorded_rewards([group]).holds
    proposals = [t for t in group.trajectories if is_proposal(t)]
    return proposals, [t for t in group.trajectories if not is_proposal(t)]


@pytest.mark.parametrize("reward", [None, intermediate_difficulty])
def test_the_proposer_is_paid_by_what_the_solvers_fail(reward: Any):
    strategy = ProposerSolver(SOLVING, group_size=40)
    if reward:
        strategy.reward = reward
    (proposal,), solvers = roles(collect(strategy, ("0?", "1?", "2?")))
    assert proposal.success and len(solvers) == 40
    question = proposal.turns[0].action.text
    assert {t.opening[0].text for t in solvers} == {f"{question}\n"}
    # a question's text is never "0" or "1", so that all fail
    assert proposal.turns[0].rewards == {"proposal": 0.0 if reward else 1.0}


def test_intermediate_difficulty_is_highest_at_one_half():
    assert [intermediate_difficulty(p) for p in (0.0, 0.25, 0.5, 1.0)] == [0.0, 0.75, 1.0, 0.0]


@pytest.mark.parametrize(("invalid_reward", "refill"), [(0.0, True), (-1.0, False)])
def test_an_invalid_question_is_replaced_from_the_pool(invalid_reward: float, refill: bool):
    strategy = ProposerSolver(SOLVING, group_size=3, invalid_reward=invalid_reward, refill=refill)
    (proposal,), solvers = roles(collect(strategy, ("none",)))
    assert proposal.total_reward == invalid_reward and not proposal.success and not solvers
    strategy.update([{"questions": [[0, ["old?", "none"]]], "documents": []}])
    (proposal,), solvers = roles(collect(strategy, ("none",)))
    assert proposal.total_reward == invalid_reward and not proposal.success
    assert len(solvers) == (3 if refill else 0) and all(t.success for t in solvers)


@pytest.mark.parametrize("right", [True, False])
def test_a_question_that_the_reader_cannot_answer_is_invalid(right: bool):
    strategy = ProposerSolver(
        SOLVING, AnswerableCheck(prompt, proposal_documents, exact), group_size=2
    )
    gold = roles(collect(ProposerSolver(SOLVING), ("q?",)))[0][0].opening[0].text.strip()
    (proposal,), solvers = roles(collect(strategy, ("q?",), (gold if right else "x",)))
    assert proposal.success is right and len(solvers) == 2 * right


def test_the_reader_sees_the_proposers_documents_among_four_others():
    check, engine = AnswerableCheck(prompt, proposal_documents, exact), ListEngine("1")
    strategy = ProposerSolver(SOLVING, check, group_size=1)
    others = [[i, [f"other {i}"]] for i in range(9)]
    strategy.update([{"questions": [], "documents": others}])
    with make_runtime(KeyedTextEngine(("q?",))) as runtime:
        runtime.add_model("reader", Model(READER, engine))
        runtime.collect(strategy, [Task(ASKING, 1)], KEY)
    (text,) = engine.prompts
    *documents, question = text.removesuffix("\n").split("\n")
    assert question == "q?" and "by q?" in documents and len(set(documents)) == 5


def test_the_search_environments_play_both_roles():
    """Nobody has searched, so that the proposal is invalid; the pool's question is asked."""
    name, options = "agentrl_jax.envs:agentrl/Search{}-v0", {"pages": 100}
    strategy = ProposerSolver(
        EnvironmentSpec(name.format("Questions"), options), group_size=2, invalid_reward=-1.0
    )
    strategy.update([{"questions": [(0, ["Who pulls?", "the Ox"])], "documents": []}])
    text = "<question>x</question><answer>Ox</answer>"
    renderer = ChatFormat(tool_format=PROPOSER.tool_format)(byte_tokenizer(chat=True))
    agent = dataclasses.replace(AGENT, renderer=renderer)
    with make_runtime(KeyedTextEngine((text,)), agent) as runtime:
        task = Task(name.format("Proposals"), 1, options)
        (group,) = runtime.collect(strategy, [task], KEY)
    (proposal,), solvers = roles(group)
    assert proposal.total_reward == -1.0 and not proposal.success
    assert [t.success for t in solvers] == [True, True]
    assert all(t.opening[0].text.startswith("Who pulls?") for t in solvers)


def test_pool_and_documents_are_the_same_in_every_process_and_are_checkpointed():
    group = collect(ProposerSolver(SOLVING, group_size=1), ("q?",))
    check = AnswerableCheck(prompt, proposal_documents, exact)
    strategy = ProposerSolver(SOLVING, check, pool_steps=2)
    summary = strategy.summarize([group])
    gold = group.trajectories[0].opening[0].text.strip()
    assert summary == {"questions": [(0, ["q?", gold])], "documents": [(0, ["by q?"])]}
    later = {"questions": [(1, ["r?", "0"])], "documents": [(1, ["z"])]}
    strategy.update([later, summary])
    assert strategy.state() == [1, [["q?", gold], ["r?", "0"]], ["by q?", "z"]]
    restored = ProposerSolver(SOLVING, check, pool_steps=2)
    restored.load(strategy.state())
    strategy.update([later])  # the second step empties the pool first
    restored.update([later])
    assert strategy.state() == restored.state() == [2, [["r?", "0"]], ["z"]]


def test_advantages_compare_solvers_of_a_question_and_all_proposers():
    first = collect(ProposerSolver(SOLVING, group_size=6), ("0?", "1?"))
    proposal, solver = (role[0] for role in roles(first))
    inputs: Any = SimpleNamespace(
        trajectory_group=np.array([0, 0, 0, 1, 1]),
        trajectory_return=np.array([1.0, 1.0, 0.0, 0.0, 4.0]),
        token_trajectory=np.arange(5),
        trajectories=[proposal, solver, solver, proposal, solver],
    )
    assert group_or_proposers(inputs).tolist() == [0, 1, 1, 0, 2]
    advantages = GroupedBy(group_or_proposers, std=False)(inputs)
    assert advantages.tolist() == [0.5, 0.5, -0.5, -0.5, 4.0]


def test_sizes_below_one_are_refused():
    with pytest.raises(UserError, match="at least 1"):
        ProposerSolver(SOLVING, group_size=0)
