"""Plans: claims proved side by side, plans made anew with what was proved, and planners that talk nonsense."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tactics import RENDERER, TacticEngine, expert, runtime_of, theorem

from agentrl_jax.algorithms.strategies.best_first import BestFirst
from agentrl_jax.algorithms.strategies.planned import Planned, Planner, is_lemma
from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.configfile import from_json, to_json
from agentrl_jax.envs.prover.planner import Forward
from agentrl_jax.errors import DeadlineExceeded, UserError
from agentrl_jax.messages import user
from agentrl_jax.runtime import Runtime
from agentrl_jax.strategies import Stateful, found
from agentrl_jax.trajectories import Group, Key
from agentrl_jax.workers import Task

LONG = "a,a>b,b>c,c>d|-d"  # four tactics; two are enough for each of b, c of b, d of c


@dataclass
class Saying:
    """Says what it was told to, plan by plan, and remembers what it was asked."""

    plans: Sequence[Sequence[Any]]
    asked: list[tuple[str, list[str], list[str]]] = field(default_factory=list)

    async def plan(self, theorem: str, proven: Sequence[str], failed: Sequence[str], runtime: Runtime, key: Key) -> Sequence[Any]:
        self.asked.append((theorem, list(proven), list(failed)))
        return self.plans[min(len(self.asked), len(self.plans)) - 1]


class Model:
    """A language model in the planner's place: each line that it writes is a claim."""

    async def plan(self, theorem: str, proven: Sequence[str], failed: Sequence[str], runtime: Runtime, key: Key) -> list[str]:
        prompt = RENDERER.render([user(f"split {theorem}\n")]).ids
        ((call,),) = await runtime.sample("policy", [prompt], 1, key)
        return RENDERER.parse(call.action).text.split(",")


class Late:
    async def plan(self, theorem: str, proven: Sequence[str], failed: Sequence[str], runtime: Runtime, key: Key) -> list[str]:
        raise DeadlineExceeded("the planner took too long")


def played(planner: Planner, task: Task, engine: TacticEngine | None = None, **settings: Any) -> Group:
    strategy = Planned(BestFirst(2, 1, cache=ProofCache()), planner, **settings)
    with runtime_of(engine or TacticEngine(expert)) as runtime:
        return runtime.collect(strategy, [task], (0, 0))[0]


def test_a_theorem_too_long_for_the_search_is_proved_by_its_parts():
    assert not played(Forward(), theorem(LONG), plans=0).trajectories[0].success
    assert not played(Forward(), theorem(LONG), plans=1).trajectories[0].success
    group = played(Forward(), theorem(LONG), plans=2)
    main, *lemmas = group.trajectories
    assert main.success and not is_lemma(main) and all(is_lemma(lemma) and lemma.success for lemma in lemmas)
    assert [lemma.turns[-1].info["lemma"] for lemma in lemmas] == ["b", "c"]
    assert main.opening[0].text == "a,a>b,b>c,c4>d,b,c|-d\n" and len(main.turns) == 2
    assert lemmas[1].opening[0].text == "a,a>b,b3>c,c>d,b|-c\n"  # the second plan's claim has the first one's as a lemma
    assert {t.task for t in group.trajectories} == {theorem(LONG).name}


def test_a_planner_is_told_what_was_proven_and_what_failed():
    planner = Saying([["b", "e"], ["e", "c"], []])
    assert not played(planner, theorem(LONG + "&e"), plans=3).trajectories[0].success
    assert [(proven, failed) for _, proven, failed in planner.asked] == [([], []), (["b"], ["e"]), (["b", "c"], ["e"])]
    assert planner.asked[0][0] == "a,a>b,b>c,c>d|-d&e s"


def test_what_is_proved_at_once_asks_nobody():
    planner = Saying([["b"]])
    assert played(planner, theorem("a,a>b|-b")).trajectories[0].success and planner.asked == []


NONSENSE = [["", " ", "x y", "(" * 500, "\ud800", "b" * 300, "\x00"], [3, None, ["b"]], ["d", "d&d", "q", "a|-b"], ["a"] * 1000]


@pytest.mark.parametrize("said", NONSENSE)
def test_nonsense_stalls_nothing(said: list[Any]):
    group = played(Saying([said]), theorem(LONG), plans=3, claims=8)
    assert not group.trajectories[0].success and group.dropped == 0


def test_no_plan_proves_what_does_not_follow():
    group = played(Saying([["b", "c", "(a>b)>b"]]), theorem("a>b,b>c|-c"), plans=2)
    assert [is_lemma(t) for t in group.trajectories] == [False] + [True] * (len(group.trajectories) - 1)
    assert not group.trajectories[0].success and all(t.turns[-1].info["lemma"] == "(a>b)>b" for t in group.trajectories[1:])


def test_a_language_model_stands_in():
    def say(prompt: str, key: Key) -> tuple[str, float]:
        return ("c,b", -1.0) if prompt.startswith("split ") else expert(prompt, key)

    planner = Model()
    assert isinstance(planner, Planner) and isinstance(Forward(), Planner)
    strategy = Planned(BestFirst(3, 1), planner)
    with runtime_of(TacticEngine(say)) as runtime:
        agent = runtime.agents["policy"]
        assert agent.sampling.budget == 4
        group = runtime.collect(strategy, [theorem(LONG)], (0, 0))[0]
    assert group.trajectories[0].success and {t.turns[-1].info["lemma"] for t in group.trajectories[1:]} == {"b", "c"}


def test_a_late_planner_is_no_plan():
    assert not played(Late(), theorem(LONG)).trajectories[0].success


def test_a_world_that_takes_no_lemmas_says_so():
    chain = Task("agentrl_jax.envs:agentrl/Chain-v0", 0)
    with pytest.raises(UserError, match="reset option"):
        played(Saying([["b"]]), chain, TacticEngine(lambda *_: ("a", -1.0)))


def test_parallel_provers_share_what_they_prove():
    """Two theorems with the same hypotheses and other goals claim the same: it is proved once."""
    cache, engine = ProofCache(), TacticEngine(expert)
    strategy = Planned(BestFirst(2, 1, cache=cache), Forward())
    tasks = [theorem(LONG), theorem("a,a>b,b>c,c>d|-d+e")]
    with runtime_of(engine) as runtime:
        groups = runtime.collect(strategy, tasks, (0, 0))
    lemmas = [[t for t in group.trajectories if is_lemma(t)] for group in groups]
    assert len(lemmas[0]) == len(lemmas[1]) == 2 and cache.hits == 2
    assert [t.calls for t in lemmas[0]] == [t.calls for t in lemmas[1]]
    assert engine.prompts.count("a,a2>b,b>c,c>d|-b\n") == 1


def test_it_is_remembered_by_a_run_folder():
    strategy = Planned(BestFirst(2, 1, cache=ProofCache()), Forward())
    assert from_json(to_json(strategy)) == strategy and found(Stateful, strategy) == [strategy.search.cache]
