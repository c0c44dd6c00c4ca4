"""Best-first search: the expansion order of a brute-force search, a recorded episode of the
accepted path only, and hostile tactics and engines.
"""

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
from support.prover_tactics import (
    PROVER_ID,
    RENDERER,
    TacticEngine,
    expert_tactic,
    last_goal,
    make_runtime,
    random_tactic,
    sampled_task,
    theorem_task,
)
from support.untimed import without_times

from agentrl_jax.algorithms.contexts.policy_notes import StepwiseThinking
from agentrl_jax.algorithms.strategies.best_first import BestFirstSearch, SearchNode
from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.algorithms.strategies.task_reference import WithTaskReference, task_from_info
from agentrl_jax.context import FullHistory
from agentrl_jax.envs.prover.prover import Prover
from agentrl_jax.envs.prover.sequents import (
    Sequent,
    TacticError,
    apply_tactic,
    parse_sequent,
    state_text,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import collate, sequences_of, token_identity
from agentrl_jax.messages import user
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage import trajectory_json
from agentrl_jax.storage.config_json import from_json, to_json
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task

TREE = "a>g,b>g,c>a,d>b,e>d,e,f>c,h>f,h>e|-g"  # two proofs of g, and one dead end
KEY = (3, 5)


class Cracked(Prover):
    """Raises, or hangs, on one tactic; or fails to reset."""

    def __init__(self, crack: str = "1", how: str = "raise", **options: Any) -> None:
        super().__init__(**options)
        self.crack, self.how = crack, how

    def _reset(self, options):
        if self.how == "closed":
            raise ValueError("closed")
        return super()._reset(options)

    def _step(self, text):
        if text.strip() == self.crack:
            if self.how == "silent":  # ends without success in its info
                return (user("over"),), 0.0, True, False, {}
            if self.how == "hang":
                time.sleep(1.5)
            else:
                raise RuntimeError("\ud800 broken")
        return super()._step(text)


if "Cracked-v0" not in gymnasium.registry:
    gymnasium.register("Cracked-v0", Cracked)


def cracked(how: str, crack: str = "1") -> Task:
    return Task(
        "Cracked-v0",
        0,
        {"crack": crack, "how": how, "horizon": 30, "longest": 200},
        {"theorem": TREE},
    )


def searched(search: BestFirstSearch, task: Task, engine: TacticEngine, **settings) -> Group:
    with make_runtime(engine, **settings) as runtime:
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


def brute_force(start: Sequent, search: BestFirstSearch) -> tuple[list[str], str | None]:
    """The states in the order of their expansion, and the proof: no heap, no environment; the best
    open state is looked up at each expansion.
    """
    nodes, order = [Open((start,), "", 0.0)], list[str]()
    known = {node.state for node in nodes}
    while nodes and len(order) < search.max_expansions:
        node = max(
            nodes, key=lambda x: x.score(search.length_power)
        )  # of equal scores the one that has been open longest
        nodes.remove(node)
        sampled = dict[str, float]()
        for j in range(search.width):
            tactic, logp = random_tactic(state_text(node.state) + "\n", (*KEY, 0, len(order), 0, j))
            if tactic not in node.tried:
                sampled.setdefault(tactic, logp)
        order.append(state_text(node.state))
        if search.reopen_states:
            nodes.append(replace(node, tried={**node.tried, **sampled}))
        proofs: list[Open] = []
        for tactic, logp in sampled.items():
            try:
                after = (*apply_tactic(node.state[0], tactic), *node.state[1:])
            except TacticError:
                continue
            child = Open(after, node.way + tactic, node.logp + logp)
            if not after:
                proofs.append(child)
            elif after not in known:
                known.add(after)
                nodes.append(child)
        if proofs:
            return order, max(proofs, key=lambda proof: proof.score(search.length_power)).way
    return order, None


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("expansions", "width"), [(4, 2), (30, 5), (30, 1)])
@pytest.mark.parametrize("reopen", [False, True])
def test_it_equals_a_brute_force_search(power: float, expansions: int, width: int, reopen: bool):
    search, engine = (
        BestFirstSearch(expansions, width, power, reopen_states=reopen),
        TacticEngine(random_tactic),
    )
    (path,) = searched(search, theorem_task(TREE), engine).trajectories
    order, proof = brute_force(parse_sequent(TREE), search)
    assert [prompt.strip() for prompt in engine.prompts] == [
        text for text in order for _ in range(width)
    ]
    assert path.success == (proof is not None) and actions(path) == (proof or "")


def test_the_brute_force_search_is_not_trivial():
    runs = [
        brute_force(parse_sequent(TREE), BestFirstSearch(30, 5, power)) for power in (0.0, 0.5, 1.0)
    ]
    assert all(proof for _, proof in runs) and max(len(order) for order, _ in runs) > 5
    assert len({tuple(order) for order, _ in runs}) > 1  # the power makes a difference
    again = [
        brute_force(parse_sequent(TREE), BestFirstSearch(30, 2, power, reopen_states=True))[0]
        for power in (0.0, 0.5, 1.0)
    ]
    assert any(len(order) > len(set(order)) for order in again)  # states were expanded again


def test_with_power_0_a_score_is_the_pure_sum_of_log_probs_and_with_1_their_mean():
    (path,) = searched(
        BestFirstSearch(20, 2), theorem_task("a,a>b,b>c|-c"), TacticEngine(random_tactic)
    ).trajectories
    logp = sum(float(call.sampler_logp.sum()) for call in path.calls)
    node = SearchNode(path.turns, path.calls[-1].prompt, logp)
    assert node.score(0.0) == logp
    assert node.score(1.0) == pytest.approx(logp / len(path.turns)) and node.score(
        0.5
    ) == pytest.approx(logp / len(path.turns) ** 0.5)


def test_the_group_is_the_accepted_path_with_its_calls_exactly_as_sampled():
    engine = TacticEngine(random_tactic)
    group = searched(BestFirstSearch(30, 5), theorem_task(TREE), engine)
    (path,) = group.trajectories
    assert (
        path.success
        and path.turns[-1].terminated
        and path.total_reward == 1
        and group.num_dropped == 0
    )
    assert all(any(call is sampled for sampled in engine.calls) for call in path.calls)
    assert len(path.calls) == len(path.turns) < len(engine.calls)
    for turn, before in zip(path.turns, [path.opening, *(turn.observation for turn in path.turns)]):
        assert turn.calls[0].prompt.tolist() == RENDERER.render([before[-1]]).ids.tolist()
        assert turn.info["weight"] == 1.0 and turn.info["anchor"] == before[-1].text.strip()
    trained = collate([group])
    assert token_identity([group], trained) == 1.0
    assert len(trained.token_index.token_sequence) == sum(len(call.action) for call in path.calls)
    counts = path.turns[-1].info["search"]
    assert (
        counts["sampled"] == len(engine.calls) == 5 * counts["expansions"] and counts["failed"] == 0
    )
    assert all("search" not in turn.info for turn in path.turns[:-1])
    assert trajectory_json.encode(
        trajectory_json.decode(trajectory_json.encode(path))
    ) == trajectory_json.encode(path)


def test_a_failed_search_has_no_turns_and_no_success():
    group = searched(BestFirstSearch(6, 2), theorem_task("a|-b+c"), TacticEngine(random_tactic))
    (path,) = group.trajectories
    assert (
        path.turns == ()
        and path.success is False
        and path.stop_reason == "turns"
        and group.num_dropped == 0
    )
    assert len(collate([group]).sequences) == 0


def test_one_sample_of_a_deterministic_policy_is_an_independent_episode():
    """A width of 1 is a chain while every tactic applies: the same prompts, actions, replies and
    rewards.
    """
    for seed in range(4):
        task = sampled_task(seed)
        (tree,) = searched(BestFirstSearch(20, 1), task, TacticEngine(expert_tactic)).trajectories
        with make_runtime(TacticEngine(expert_tactic)) as runtime:
            (alone,) = runtime.collect(IndependentEpisodes(1), [task], KEY)[0].trajectories
        assert (
            tree.opening == alone.opening
            and tree.success is alone.success is True
            and len(tree.turns) == len(alone.turns)
        )
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
        [
            without_times(trajectory_json.encode(t))
            for t in searched(
                BestFirstSearch(30, 2), theorem_task(TREE), TacticEngine(random_tactic)
            ).trajectories
        ]
        for _ in range(3)
    )
    assert first == again == other
    with make_runtime(TacticEngine(random_tactic)) as runtime:
        groups = [
            runtime.collect(BestFirstSearch(30, 2), [theorem_task(TREE)], (3, step))[0]
            for step in range(6)
        ]
    assert (
        len(
            {
                json.dumps([without_times(trajectory_json.encode(t)) for t in group.trajectories])
                for group in groups
            }
        )
        > 1
    )


def test_with_the_full_history_the_path_is_one_training_sequence():
    engine = TacticEngine(random_tactic)
    (path,) = searched(
        BestFirstSearch(40, 5), theorem_task(TREE), engine, context=FullHistory()
    ).trajectories
    assert path.success and len(sequences_of(path)) == 1
    for call, after in zip(path.calls, path.calls[1:]):
        assert after.extends(call)
    assert len(set(engine.prompts)) * 5 == len(engine.prompts)  # no state occurs twice


HOSTILE = [
    None,
    "",
    " ",
    "x" * 500,
    "\n",
    "q",
    "é🟩",
    "<|im_end|>",
    "12",
    "\x00\x1b[2J",
    "|-a",
    "proved",
    "{}",
]


@pytest.mark.parametrize("width", [2, 20])
def test_hostile_tactics_cost_only_samples(width: int):
    def say(prompt: str, key: RandomKey) -> tuple[str | None, float]:
        return (
            expert_tactic(prompt, key)
            if key[-1] == width - 1
            else (HOSTILE[key[-1] % len(HOSTILE)], -0.01)
        )

    (path,) = searched(
        BestFirstSearch(10, width), theorem_task("a,a>b,b>c|-c"), TacticEngine(say)
    ).trajectories
    assert (
        path.success and actions(path) == "321" and path.turns[-1].info["search"]["expansions"] == 3
    )
    (lost,) = searched(
        BestFirstSearch(10, 12),
        theorem_task("a|-a"),
        TacticEngine(lambda prompt, key: (HOSTILE[key[-1]], -1.0)),
    ).trajectories
    assert not lost.success


@pytest.mark.parametrize("how", ["raise", "hang"])
def test_a_tactic_that_breaks_its_environment_is_dropped_alone(how: str):
    """g from a is a tactic on which every environment fails; g from b is proved all the same."""
    engine, deadlines = TacticEngine(random_tactic), Timeouts(turn=1.0, episode=60.0)
    with make_runtime(engine, deadlines=deadlines, retries=1) as runtime:
        group = runtime.collect(BestFirstSearch(40, 5), [cracked(how)], KEY)[0]
        assert runtime.failures.total >= 2 and runtime.failures.dropped == 0
    (path,) = group.trajectories
    assert (
        path.success and "1" not in actions(path) and path.turns[-1].info["search"]["failed"] >= 1
    )


def test_an_environment_that_ends_without_reporting_success_is_refused():
    with pytest.raises(UserError, match="does not say whether it was solved"):
        searched(BestFirstSearch(40, 5), cracked("silent"), TacticEngine(random_tactic))


def test_an_environment_that_never_resets_drops_its_group():
    with make_runtime(TacticEngine(random_tactic)) as runtime:
        group = runtime.collect(
            BestFirstSearch(4, 2, proof_cache=ProofCache()), [cracked("closed")], KEY
        )[0]
        assert group.trajectories == () and group.num_dropped == 1 and runtime.failures.dropped == 1


def test_a_late_engine_drops_its_group():
    began = time.monotonic()
    with make_runtime(
        TacticEngine(random_tactic, never_answers=True), deadlines=Timeouts(turn=0.05, episode=30.0)
    ) as runtime:
        group = runtime.collect(BestFirstSearch(4, 2), [theorem_task(TREE)], KEY)[0]
        assert group.num_dropped == 1 and runtime.failures.counts["deadline"] == 1
    assert time.monotonic() - began < 10


def test_a_search_ends_at_the_episode_timeout():
    deadlines = Timeouts(turn=1.75, episode=2.0)
    group = searched(
        BestFirstSearch(10_000, 4),
        cracked("hang", "9"),
        TacticEngine(lambda *_: ("9", -1.0)),
        deadlines=deadlines,
        retries=5,
    )
    (path,) = group.trajectories
    assert not path.success and path.turns == ()


@pytest.mark.parametrize(
    ("limits", "actions_tried"),
    [  # a proof of three actions of two tokens each
        (Limits(), 3),
        (Limits(turns=3), 3),
        (Limits(turns=2), 2),
        (Limits(calls=2), 2),
        (Limits(tokens=5), 3),  # the engine of this test ignores the budget of 1
        (Limits(tokens=4), 2),
        (Limits(context=5), 0),  # shorter than the theorem
    ],
)
def test_an_agents_limits_bound_the_depth(limits: Limits, actions_tried: int):
    engine = TacticEngine(expert_tactic)
    group = searched(BestFirstSearch(20, 1), theorem_task("a,a>b,b>c|-c"), engine, limits=limits)
    assert group.trajectories[0].success is (actions_tried == 3)
    assert len(engine.calls) == actions_tried
    budgets = [call.sampling.budget for call in engine.calls]
    assert budgets == ([4, 3, 1] if limits.tokens == 5 else budgets)


def test_notes_and_invalid_sizes_are_refused():
    deep = theorem_task("a,a>b,b>c|-c")
    with pytest.raises(UserError, match="requests notes"):
        searched(
            BestFirstSearch(), deep, TacticEngine(expert_tactic), context=StepwiseThinking("b", 2)
        )
    for wrong in ((0, 1, 0.0), (1, 0, 0.0), (1, 1, -1.0)):
        with pytest.raises(UserError):
            BestFirstSearch(*wrong)


# The cache


def test_a_cache_hit_never_runs_the_prover():
    search, engine = BestFirstSearch(30, 5, proof_cache=ProofCache()), TacticEngine(random_tactic)
    assert search.proof_cache is not None
    with make_runtime(engine) as runtime:
        (first,) = runtime.collect(search, [theorem_task(TREE)], (0, 0))[0].trajectories
        num_calls = len(engine.calls)
        twin = dataclasses.replace(theorem_task(TREE), seed=9, group=4)
        (second,) = runtime.collect(search, [twin], (0, 7))[0].trajectories
    assert (
        num_calls > 0
        and len(engine.calls) == num_calls
        and search.proof_cache.hits == 1
        and len(search.proof_cache) == 1
    )
    assert second.calls == first.calls and (second.seed, second.group, second.task) == (
        9,
        4,
        twin.name,
    )
    assert (
        second.turns[-1].info["search"]["expansions"]
        == 0
        < first.turns[-1].info["search"]["expansions"]
    )


def test_concurrent_searches_share_one_proof_in_any_order():
    def search_concurrently(tasks: int, place: int) -> tuple[list[Group], int]:
        engine = TacticEngine(random_tactic)
        other_tasks = [theorem_task(f"a,a>b,b>c{',d' * i}|-c") for i in range(tasks)]
        with make_runtime(engine) as runtime:
            groups = runtime.collect(
                BestFirstSearch(30, 5, proof_cache=ProofCache()),
                [*other_tasks[:place], theorem_task(TREE), *other_tasks[place:]],
                KEY,
            )
        return [groups[place]], len(engine.calls)

    engine = TacticEngine(random_tactic)
    with make_runtime(engine) as runtime:
        groups = runtime.collect(
            BestFirstSearch(30, 5, proof_cache=ProofCache()), [theorem_task(TREE)] * 5, KEY
        )
    once, _ = search_concurrently(0, 0)
    assert all(group.trajectories[0].calls == groups[0].trajectories[0].calls for group in groups)
    assert len(engine.calls) == 5 * once[0].trajectories[0].turns[-1].info["search"]["expansions"]
    assert (
        actions(search_concurrently(2, 2)[0][0].trajectories[0])
        == actions(search_concurrently(2, 0)[0][0].trajectories[0])
        == actions(once[0].trajectories[0])
    )


def test_a_failed_proof_is_tried_again():
    search, engine = BestFirstSearch(4, 2, proof_cache=ProofCache()), TacticEngine(random_tactic)
    with make_runtime(engine) as runtime:
        runtime.collect(search, [theorem_task("a|-b+c")], (0, 0))
        num_calls = len(engine.calls)
        runtime.collect(search, [theorem_task("a|-b+c")], (0, 1))
    assert (
        len(engine.calls) == 2 * num_calls
        and search.proof_cache is not None
        and len(search.proof_cache) == 0
    )


def test_a_cache_is_bounded_and_read_back_from_plain_data():
    search = BestFirstSearch(20, 1, proof_cache=ProofCache(capacity=2))
    tasks = [theorem_task(text) for text in ("a|-a", "b|-b", "a,b|-b")]
    with make_runtime(TacticEngine(expert_tactic)) as runtime:
        for task in tasks:
            runtime.collect(search, [task], KEY)
    again = from_json(json.loads(json.dumps(to_json(search))))
    assert again == search and len(again.proof_cache) == 0
    assert search.proof_cache is not None and again.proof_cache is not None
    again.proof_cache.load(json.loads(json.dumps(search.proof_cache.state())))
    silent = TacticEngine(lambda *_: ("q", 0.0))
    with make_runtime(silent) as runtime:
        groups = runtime.collect(again, tasks, KEY)
    assert [group.trajectories[0].success for group in groups] == [False, True, True] and len(
        silent.calls
    ) == 1


def test_a_cancelled_search_does_not_cancel_a_shared_proof():
    cache = ProofCache()

    async def two() -> tuple[bool, int]:
        ran: list[int] = []

        async def prove() -> Trajectory:
            ran.append(1)
            await asyncio.sleep(0.05)
            return Trajectory((), (), success=True)

        first = asyncio.ensure_future(cache.get_or_prove("x", prove))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(cache.get_or_prove("x", prove))
        await asyncio.sleep(0)
        first.cancel()
        proof = await second
        return bool(proof and proof.success), len(ran)

    assert asyncio.run(two()) == (True, 1)


def test_a_trajectory_with_a_task_reference_returns_its_task():
    strategy = WithTaskReference(BestFirstSearch(20, 1, proof_cache=ProofCache()))
    with make_runtime(TacticEngine(expert_tactic)) as runtime:
        ((path,),) = (
            group.trajectories for group in runtime.collect(strategy, [theorem_task(TREE)], KEY)
        )
    decoded = trajectory_json.decode(trajectory_json.encode(path))
    assert task_from_info(decoded) == theorem_task(TREE) and all(
        "task" in turn.info for turn in decoded.turns
    )
    assert task_from_info(path.replace(turns=())) is None
    assert PROVER_ID in path.task and last_goal("a|-b;c\n") == "a|-c"
