"""Planner search: claims proved concurrently, new plans after proved and failed claims, and invalid
plans.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.prover_tactics import RENDERER, TacticEngine, expert_tactic, make_runtime, theorem_task

from agentrl_jax.algorithms.strategies.best_first import BestFirstSearch
from agentrl_jax.algorithms.strategies.planner_search import Planner, PlannerSearch, is_lemma
from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.envs.prover.planner import ForwardPlanner
from agentrl_jax.errors import DeadlineExceeded, UserError
from agentrl_jax.messages import user
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import find_pieces
from agentrl_jax.storage.config_json import from_json, to_json
from agentrl_jax.trajectories import Group, RandomKey
from agentrl_jax.workers.pool import Task

LONG = "a,a>b,b>c,c>d|-d"  # four tactics; two suffice for each of b, c from b, d from c


@dataclass
class ListPlanner:
    """Returns the given plans in order, and records its requests."""

    plans: Sequence[Sequence[Any]]
    requests: list[tuple[str, list[str], list[str]]] = field(default_factory=list)

    async def plan(
        self,
        theorem: str,
        proven_claims: Sequence[str],
        failed_claims: Sequence[str],
        runtime: Runtime,
        key: RandomKey,
    ) -> Sequence[Any]:
        self.requests.append((theorem, list(proven_claims), list(failed_claims)))
        return self.plans[min(len(self.requests), len(self.plans)) - 1]


class ModelPlanner:
    """A language model as the planner: each line that it writes is a claim."""

    async def plan(
        self,
        theorem: str,
        proven_claims: Sequence[str],
        failed_claims: Sequence[str],
        runtime: Runtime,
        key: RandomKey,
    ) -> list[str]:
        prompt = RENDERER.render([user(f"split {theorem}\n")]).ids
        ((call,),) = await runtime.sample("policy", [prompt], 1, key)
        return RENDERER.parse(call.action).text.split(",")


class LatePlanner:
    async def plan(
        self,
        theorem: str,
        proven_claims: Sequence[str],
        failed_claims: Sequence[str],
        runtime: Runtime,
        key: RandomKey,
    ) -> list[str]:
        raise DeadlineExceeded("the planner took too long")


def search_with(
    planner: Planner, task: Task, engine: TacticEngine | None = None, **settings: Any
) -> Group:
    strategy = PlannerSearch(BestFirstSearch(2, 1, proof_cache=ProofCache()), planner, **settings)
    with make_runtime(engine or TacticEngine(expert_tactic)) as runtime:
        return runtime.collect(strategy, [task], (0, 0))[0]


def test_a_theorem_too_long_for_the_search_is_proved_by_its_parts():
    assert (
        not search_with(ForwardPlanner(), theorem_task(LONG), max_plans=0).trajectories[0].success
    )
    assert (
        not search_with(ForwardPlanner(), theorem_task(LONG), max_plans=1).trajectories[0].success
    )
    group = search_with(ForwardPlanner(), theorem_task(LONG), max_plans=2)
    main, *lemmas = group.trajectories
    assert (
        main.success
        and not is_lemma(main)
        and all(is_lemma(lemma) and lemma.success for lemma in lemmas)
    )
    assert [lemma.turns[-1].info["lemma"] for lemma in lemmas] == ["b", "c"]
    assert main.opening[0].text == "a,a>b,b>c,c4>d,b,c|-d\n" and len(main.turns) == 2
    assert (
        lemmas[1].opening[0].text == "a,a>b,b3>c,c>d,b|-c\n"
    )  # the second plan's claim has the first plan's as a lemma
    assert {t.task for t in group.trajectories} == {theorem_task(LONG).name}


def test_a_planner_receives_proven_and_failed_claims():
    planner = ListPlanner([["b", "e"], ["e", "c"], []])
    assert not search_with(planner, theorem_task(LONG + "&e"), max_plans=3).trajectories[0].success
    assert [(proven, failed) for _, proven, failed in planner.requests] == [
        ([], []),
        (["b"], ["e"]),
        (["b", "c"], ["e"]),
    ]
    assert planner.requests[0][0] == "a,a>b,b>c,c>d|-d&e s"


def test_a_theorem_that_is_proved_directly_needs_no_planner():
    planner = ListPlanner([["b"]])
    assert (
        search_with(planner, theorem_task("a,a>b|-b")).trajectories[0].success
        and planner.requests == []
    )


NONSENSE = [
    ["", " ", "x y", "(" * 500, "\ud800", "b" * 300, "\x00"],
    [3, None, ["b"]],
    ["d", "d&d", "q", "a|-b"],
    ["a"] * 1000,
]


@pytest.mark.parametrize("claims", NONSENSE)
def test_invalid_claims_do_not_stall(claims: list[Any]):
    group = search_with(ListPlanner([claims]), theorem_task(LONG), max_plans=3, max_claims=8)
    assert not group.trajectories[0].success and group.num_dropped == 0


def test_an_error_while_a_claim_is_searched_for_is_no_refused_claim():
    def say(prompt: str, key: RandomKey) -> tuple[str, float]:
        if prompt.endswith("|-b\n"):
            raise UserError("the engine has no such model")
        return expert_tactic(prompt, key)

    with pytest.raises(UserError, match="no such model"):
        search_with(ListPlanner([["b"]]), theorem_task(LONG), TacticEngine(say))


def test_no_plan_proves_what_does_not_follow():
    group = search_with(
        ListPlanner([["b", "c", "(a>b)>b"]]), theorem_task("a>b,b>c|-c"), max_plans=2
    )
    assert [is_lemma(t) for t in group.trajectories] == [False] + [True] * (
        len(group.trajectories) - 1
    )
    assert not group.trajectories[0].success and all(
        t.turns[-1].info["lemma"] == "(a>b)>b" for t in group.trajectories[1:]
    )


def test_a_language_model_can_be_the_planner():
    def say(prompt: str, key: RandomKey) -> tuple[str, float]:
        return ("c,b", -1.0) if prompt.startswith("split ") else expert_tactic(prompt, key)

    planner = ModelPlanner()
    assert isinstance(planner, Planner) and isinstance(ForwardPlanner(), Planner)
    strategy = PlannerSearch(BestFirstSearch(3, 1), planner)
    with make_runtime(TacticEngine(say)) as runtime:
        agent = runtime.agents["policy"]
        assert agent.sampling.budget == 4
        group = runtime.collect(strategy, [theorem_task(LONG)], (0, 0))[0]
    assert group.trajectories[0].success and {
        t.turns[-1].info["lemma"] for t in group.trajectories[1:]
    } == {"b", "c"}


def test_a_late_planner_counts_as_no_plan():
    assert not search_with(LatePlanner(), theorem_task(LONG)).trajectories[0].success


def test_an_environment_without_lemmas_is_an_error():
    chain = Task("agentrl_jax.envs:agentrl/Chain-v0", 0)
    with pytest.raises(UserError, match="reset option"):
        search_with(ListPlanner([["b"]]), chain, TacticEngine(lambda *_: ("a", -1.0)))


def test_parallel_provers_share_what_they_prove():
    """Two theorems with the same hypotheses and other goals share a claim: it is proved once."""
    cache, engine = ProofCache(), TacticEngine(expert_tactic)
    strategy = PlannerSearch(BestFirstSearch(2, 1, proof_cache=cache), ForwardPlanner())
    tasks = [theorem_task(LONG), theorem_task("a,a>b,b>c,c>d|-d+e")]
    with make_runtime(engine) as runtime:
        groups = runtime.collect(strategy, tasks, (0, 0))
    lemmas = [[t for t in group.trajectories if is_lemma(t)] for group in groups]
    assert len(lemmas[0]) == len(lemmas[1]) == 2 and cache.hits == 2
    assert [t.calls for t in lemmas[0]] == [t.calls for t in lemmas[1]]
    assert engine.prompts.count("a,a2>b,b>c,c>d|-b\n") == 1


def test_a_planner_search_is_read_back_from_its_config_file():
    strategy = PlannerSearch(BestFirstSearch(2, 1, proof_cache=ProofCache()), ForwardPlanner())
    assert from_json(to_json(strategy)) == strategy and find_pieces(strategy) == [
        strategy.search.proof_cache
    ]
