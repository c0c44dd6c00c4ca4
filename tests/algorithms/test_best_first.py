"""Best-first search: the order of a brute-force search, the record of the accepted path alone, and nothing that stalls it."""

import asyncio
import dataclasses
import json
import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from tactics import PROVER, RENDERER, TacticEngine, drawn, expert, guess, last_goal, runtime_of, theorem

from agentrl_jax import journal
from agentrl_jax.algorithms.contexts.asking import Decomposed
from agentrl_jax.algorithms.strategies.best_first import BestFirst, Node
from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.algorithms.strategies.recallable import Recallable, task_of
from agentrl_jax.configfile import from_json, to_json
from agentrl_jax.context import FullHistory
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.envs.prover.prover import Prover
from agentrl_jax.envs.prover.sequents import Refused, Sequent, applied, shown, stated
from agentrl_jax.errors import UserError
from agentrl_jax.rows import collate, rows_of, token_identity
from agentrl_jax.speaking import Limits
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task

TREE = "a>g,b>g,c>a,d>b,e>d,e,f>c,h>f,h>e|-g"  # two ways to g, one of them from nowhere
KEY = (3, 5)


class Cracked(Prover):
    """Breaks down, or hangs, on one tactic; or never opens."""

    def __init__(self, crack: str = "1", how: str = "raise", **options: Any) -> None:
        super().__init__(**options)
        self.crack, self.how = crack, how

    def _reset(self, options):
        if self.how == "closed":
            raise ValueError("closed")
        return super()._reset(options)

    def _step(self, text):
        if text.strip() == self.crack:
            if self.how == "hang":
                time.sleep(0.3)
            else:
                raise RuntimeError("\ud800 broken")
        return super()._step(text)


if "Cracked-v0" not in gymnasium.registry:
    gymnasium.register("Cracked-v0", Cracked)


def cracked(how: str, crack: str = "1") -> Task:
    return Task("Cracked-v0", 0, {"crack": crack, "how": how, "horizon": 30, "longest": 200}, {"theorem": TREE})


def searched(search: BestFirst, task: Task, engine: TacticEngine, **settings) -> Group:
    with runtime_of(engine, **settings) as runtime:
        return runtime.collect(search, [task], KEY)[0]


def actions(trajectory: Trajectory) -> str:
    return "".join(turn.action.text for turn in trajectory.turns)


@dataclass
class Open:
    """A state that may be expanded."""

    state: tuple[Sequent, ...]
    way: str
    logp: float
    tried: dict[str, float] = field(default_factory=dict)

    def score(self, power: float) -> float:
        left = math.log(max(1 - sum(map(math.exp, self.tried.values())), 1e-9))
        return (self.logp + left) / max(len(self.way), 1) ** power


def brute_force(start: Sequent, search: BestFirst) -> tuple[list[str], str | None]:
    """The states in the order of their expansion, and the proof: no heap, no world; the best of all open states looked up each time."""
    nodes, order = [Open((start,), "", 0.0)], list[str]()
    known = {node.state for node in nodes}
    while nodes and len(order) < search.expansions:
        node = max(nodes, key=lambda one: one.score(search.length_power))  # of several the one that has been open longest
        nodes.remove(node)
        sampled = dict[str, float]()
        for j in range(search.width):
            tactic, one = guess(shown(node.state) + "\n", (*KEY, 0, len(order), 0, j))
            if tactic not in node.tried:
                sampled.setdefault(tactic, one)
        order.append(shown(node.state))
        if search.reopen:
            nodes.append(replace(node, tried={**node.tried, **sampled}))
        proofs: list[Open] = []
        for tactic, one in sampled.items():
            try:
                after = (*applied(node.state[0], tactic), *node.state[1:])
            except Refused:
                continue
            found = Open(after, node.way + tactic, node.logp + one)
            if not after:
                proofs.append(found)
            elif after not in known:
                known.add(after)
                nodes.append(found)
        if proofs:
            return order, max(proofs, key=lambda proof: proof.score(search.length_power)).way
    return order, None


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("expansions", "width"), [(4, 2), (30, 5), (30, 1)])
@pytest.mark.parametrize("reopen", [False, True])
def test_it_equals_a_brute_force_search(power: float, expansions: int, width: int, reopen: bool):
    search, engine = BestFirst(expansions, width, power, reopen=reopen), TacticEngine(guess)
    (found,) = searched(search, theorem(TREE), engine).trajectories
    order, proof = brute_force(stated(TREE), search)
    assert [prompt.strip() for prompt in engine.prompts] == [text for text in order for _ in range(width)]
    assert found.success == (proof is not None) and actions(found) == (proof or "")


def test_the_brute_force_search_above_is_of_some_size():
    runs = [brute_force(stated(TREE), BestFirst(30, 5, power)) for power in (0.0, 0.5, 1.0)]
    assert all(proof for _, proof in runs) and max(len(order) for order, _ in runs) > 5
    assert len({tuple(order) for order, _ in runs}) > 1  # the power matters
    again = [brute_force(stated(TREE), BestFirst(30, 2, power, reopen=True))[0] for power in (0.0, 0.5, 1.0)]
    assert any(len(order) > len(set(order)) for order in again)  # states were expanded again


def test_with_power_0_a_score_is_the_pure_sum_of_log_probs_and_with_1_their_mean():
    (path,) = searched(BestFirst(20, 2), theorem("a,a>b,b>c|-c"), TacticEngine(guess)).trajectories
    logp = sum(float(call.sampler_logp.sum()) for call in path.calls)
    node = Node(path.turns, path.calls[-1].prompt, logp)
    assert node.score(0.0) == logp
    assert node.score(1.0) == pytest.approx(logp / len(path.turns)) and node.score(0.5) == pytest.approx(logp / len(path.turns) ** 0.5)


def test_the_group_is_the_accepted_path_with_its_calls_exactly_as_sampled():
    engine = TacticEngine(guess)
    group = searched(BestFirst(30, 5), theorem(TREE), engine)
    (path,) = group.trajectories
    assert path.success and path.turns[-1].terminated and path.total_reward == 1 and group.dropped == 0
    assert all(any(call is sampled for sampled in engine.calls) for call in path.calls)
    assert len(path.calls) == len(path.turns) < len(engine.calls)
    for turn, before in zip(path.turns, [path.opening, *(turn.observation for turn in path.turns)]):
        assert turn.calls[0].prompt.tolist() == RENDERER.render([before[-1]]).ids.tolist()
        assert turn.info["weight"] == 1.0 and turn.info["anchor"] == before[-1].text.strip()
    trained = collate([group])
    assert token_identity([group], trained) == 1.0
    assert len(trained.indices.token_row) == sum(len(call.action) for call in path.calls)
    counts = path.turns[-1].info["search"]
    assert counts["sampled"] == len(engine.calls) == 5 * counts["expansions"] and counts["failed"] == 0
    assert all("search" not in turn.info for turn in path.turns[:-1])
    assert journal.encode(journal.decode(journal.encode(path))) == journal.encode(path)


def test_where_nothing_is_found_there_is_no_turn_and_no_success():
    group = searched(BestFirst(6, 2), theorem("a|-b+c"), TacticEngine(guess))
    (path,) = group.trajectories
    assert path.turns == () and path.success is False and path.stop_reason == "turns" and group.dropped == 0
    assert len(collate([group]).rows) == 0


def test_one_sample_of_a_sure_hand_is_an_independent_episode():
    """A width of 1 is a chain while every tactic leads on: the same prompts, actions, answers and rewards."""
    for seed in range(4):
        task = drawn(seed)
        (tree,) = searched(BestFirst(20, 1), task, TacticEngine(expert)).trajectories
        with runtime_of(TacticEngine(expert)) as runtime:
            (alone,) = runtime.collect(Independent(1), [task], KEY)[0].trajectories
        assert tree.opening == alone.opening and tree.success is alone.success is True and len(tree.turns) == len(alone.turns)
        for ours, theirs in zip(tree.turns, alone.turns):
            assert (ours.action, ours.observation, ours.rewards, ours.terminated) == (
                theirs.action, theirs.observation, theirs.rewards, theirs.terminated,
            )  # fmt: skip
            assert np.array_equal(ours.calls[0].ids, theirs.calls[0].ids)
        assert (tree.task, tree.group, tree.seed, tree.agent, tree.stop_reason) == (
            alone.task, alone.group, alone.seed, alone.agent, alone.stop_reason,
        )  # fmt: skip


def test_a_key_fixes_the_search_and_another_one_changes_it():
    first, again, other = (
        [journal.encode(t) for t in searched(BestFirst(30, 2), theorem(TREE), TacticEngine(guess)).trajectories] for _ in range(3)
    )
    assert first == again == other
    with runtime_of(TacticEngine(guess)) as runtime:
        groups = [runtime.collect(BestFirst(30, 2), [theorem(TREE)], (3, step))[0] for step in range(6)]
    assert len({json.dumps([journal.encode(t) for t in group.trajectories]) for group in groups}) > 1


def test_with_the_whole_history_the_path_is_one_row():
    engine = TacticEngine(guess)
    (path,) = searched(BestFirst(40, 5), theorem(TREE), engine, context=FullHistory()).trajectories
    assert path.success and len(rows_of(path)) == 1
    for call, after in zip(path.calls, path.calls[1:]):
        assert after.extends(call)
    assert len(set(engine.prompts)) * 5 == len(engine.prompts)  # no state twice


HOSTILE = [None, "", " ", "x" * 500, "\n", "q", "é🟩", "<|im_end|>", "12", "\x00\x1b[2J", "|-a", "proved", "{}"]


@pytest.mark.parametrize("width", [2, 20])
def test_hostile_tactics_cost_samples_and_nothing_else(width: int):
    def say(prompt: str, key: Key) -> tuple[str | None, float]:
        return expert(prompt, key) if key[-1] == width - 1 else (HOSTILE[key[-1] % len(HOSTILE)], -0.01)

    (path,) = searched(BestFirst(10, width), theorem("a,a>b,b>c|-c"), TacticEngine(say)).trajectories
    assert path.success and actions(path) == "321" and path.turns[-1].info["search"]["expansions"] == 3
    (lost,) = searched(BestFirst(10, 12), theorem("a|-a"), TacticEngine(lambda prompt, key: (HOSTILE[key[-1]], -1.0))).trajectories
    assert not lost.success


@pytest.mark.parametrize("how", ["raise", "hang"])
def test_a_tactic_that_breaks_its_world_is_given_up_alone(how: str):
    """g from a is a tactic that no world survives; g from b is proved all the same."""
    engine, deadlines = TacticEngine(guess), Deadlines(turn=0.2, episode=60.0)
    with runtime_of(engine, deadlines=deadlines, retries=1) as runtime:
        group = runtime.collect(BestFirst(40, 5), [cracked(how)], KEY)[0]
        assert runtime.failures.total >= 2 and runtime.failures.dropped == 0
    (path,) = group.trajectories
    assert path.success and "1" not in actions(path) and path.turns[-1].info["search"]["failed"] >= 1


def test_a_world_that_never_opens_is_a_drop():
    with runtime_of(TacticEngine(guess)) as runtime:
        group = runtime.collect(BestFirst(4, 2, cache=ProofCache()), [cracked("closed")], KEY)[0]
        assert group.trajectories == () and group.dropped == 1 and runtime.failures.dropped == 1


def test_a_late_engine_is_a_drop_and_stalls_nobody():
    began = time.monotonic()
    with runtime_of(TacticEngine(guess, late=True), deadlines=Deadlines(turn=0.05, episode=30.0)) as runtime:
        group = runtime.collect(BestFirst(4, 2), [theorem(TREE)], KEY)[0]
        assert group.dropped == 1 and runtime.failures.counts["deadline"] == 1
    assert time.monotonic() - began < 10


def test_a_search_ends_with_the_time_of_an_episode():
    deadlines = Deadlines(turn=0.35, episode=0.4)
    group = searched(BestFirst(10_000, 4), cracked("hang", "9"), TacticEngine(lambda *_: ("9", -1.0)), deadlines=deadlines, retries=5)
    (path,) = group.trajectories
    assert not path.success and path.turns == ()


def test_an_agents_cap_on_turns_bounds_the_depth_and_other_limits_and_notes_are_refused():
    deep = theorem("a,a>b,b>c|-c")
    assert searched(BestFirst(20, 1), deep, TacticEngine(expert), limits=Limits(turns=3)).trajectories[0].success
    assert not searched(BestFirst(20, 1), deep, TacticEngine(expert), limits=Limits(turns=2)).trajectories[0].success
    with pytest.raises(UserError, match="only turns"):
        searched(BestFirst(), deep, TacticEngine(expert), limits=Limits(tokens=50))
    with pytest.raises(UserError, match="Decomposed, which asks for notes"):
        searched(BestFirst(), deep, TacticEngine(expert), context=Decomposed("b", 2))
    for wrong in ((0, 1, 0.0), (1, 0, 0.0), (1, 1, -1.0)):
        with pytest.raises(UserError):
            BestFirst(*wrong)


# The cache


def test_a_hit_never_runs_the_prover():
    search, engine = BestFirst(30, 5, cache=ProofCache()), TacticEngine(guess)
    assert search.cache is not None
    with runtime_of(engine) as runtime:
        (first,) = runtime.collect(search, [theorem(TREE)], (0, 0))[0].trajectories
        asked = len(engine.calls)
        twin = dataclasses.replace(theorem(TREE), seed=9, group=4)
        (second,) = runtime.collect(search, [twin], (0, 7))[0].trajectories
    assert asked > 0 and len(engine.calls) == asked and search.cache.hits == 1 and len(search.cache) == 1
    assert second.calls == first.calls and (second.seed, second.group, second.task) == (9, 4, twin.name)
    assert second.turns[-1].info["search"]["expansions"] == 0 < first.turns[-1].info["search"]["expansions"]


def test_searches_side_by_side_share_one_proof_whoever_comes_first():
    def played(tasks: int, place: int) -> tuple[list[Group], int]:
        engine = TacticEngine(guess)
        others = [theorem(f"a,a>b,b>c{',d' * i}|-c") for i in range(tasks)]
        with runtime_of(engine) as runtime:
            groups = runtime.collect(BestFirst(30, 5, cache=ProofCache()), [*others[:place], theorem(TREE), *others[place:]], KEY)
        return [groups[place]], len(engine.calls)

    engine = TacticEngine(guess)
    with runtime_of(engine) as runtime:
        groups = runtime.collect(BestFirst(30, 5, cache=ProofCache()), [theorem(TREE)] * 5, KEY)
    once, _ = played(0, 0)
    assert all(group.trajectories[0].calls == groups[0].trajectories[0].calls for group in groups)
    assert len(engine.calls) == 5 * once[0].trajectories[0].turns[-1].info["search"]["expansions"]
    assert actions(played(2, 2)[0][0].trajectories[0]) == actions(played(2, 0)[0][0].trajectories[0]) == actions(once[0].trajectories[0])


def test_what_failed_is_tried_again():
    search, engine = BestFirst(4, 2, cache=ProofCache()), TacticEngine(guess)
    with runtime_of(engine) as runtime:
        runtime.collect(search, [theorem("a|-b+c")], (0, 0))
        asked = len(engine.calls)
        runtime.collect(search, [theorem("a|-b+c")], (0, 1))
    assert len(engine.calls) == 2 * asked and search.cache is not None and len(search.cache) == 0


def test_a_cache_is_bounded_and_read_back_from_plain_data():
    search = BestFirst(20, 1, cache=ProofCache(size=2))
    tasks = [theorem(text) for text in ("a|-a", "b|-b", "a,b|-b")]
    with runtime_of(TacticEngine(expert)) as runtime:
        for task in tasks:
            runtime.collect(search, [task], KEY)
    again = from_json(json.loads(json.dumps(to_json(search))))
    assert again == search and len(again.cache) == 0
    assert search.cache is not None and again.cache is not None
    again.cache.load(json.loads(json.dumps(search.cache.state())))
    silent = TacticEngine(lambda *_: ("q", 0.0))
    with runtime_of(silent) as runtime:
        groups = runtime.collect(again, tasks, KEY)
    assert [group.trajectories[0].success for group in groups] == [False, True, True] and len(silent.calls) == 1


def test_a_search_given_up_leaves_the_others_their_proof():
    cache = ProofCache()

    async def two() -> tuple[bool, int]:
        ran: list[int] = []

        async def prove() -> Trajectory:
            ran.append(1)
            await asyncio.sleep(0.05)
            return Trajectory((), (), success=True)

        first = asyncio.ensure_future(cache.proof("x", prove))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(cache.proof("x", prove))
        await asyncio.sleep(0)
        first.cancel()
        found = await second
        return bool(found and found.success), len(ran)

    assert asyncio.run(two()) == (True, 1)


def test_a_recallable_trajectory_tells_its_task():
    strategy = Recallable(BestFirst(20, 1, cache=ProofCache()))
    with runtime_of(TacticEngine(expert)) as runtime:
        ((path,),) = (group.trajectories for group in runtime.collect(strategy, [theorem(TREE)], KEY))
    told = journal.decode(journal.encode(path))
    assert task_of(told) == theorem(TREE) and all("task" in turn.info for turn in told.turns)
    assert task_of(path.replace(turns=())) is None
    assert PROVER in path.task and last_goal("a|-b;c\n") == "a|-c"
