"""What each method's paper or code implies in numbers, held against whole steps."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hand_made import TurnShape, grown_groups, make_call, make_trajectory, make_turn, told
from test_methods import GROUPS, HEAD, METHODS, PARAMS, SHAPE, Paper, bare, equal, felt, ppo_base, written

from agentrl_jax.algorithms.aggregation import TokenSum, token_mean
from agentrl_jax.algorithms.auxiliary import SelfImitation, relabelled
from agentrl_jax.algorithms.critics import ValueModel
from agentrl_jax.algorithms.gae import GAE
from agentrl_jax.algorithms.keying import place_of_turn
from agentrl_jax.algorithms.methods import critics, dialogue, groups, gui, tools
from agentrl_jax.algorithms.mismatch import IcePop
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.process_rewards import JudgedTurns
from agentrl_jax.algorithms.rewards import Gate
from agentrl_jax.algorithms.schedules import PhaseWeight
from agentrl_jax.algorithms.self_imitation import PositiveReplay
from agentrl_jax.algorithms.surrogates import PPO
from agentrl_jax.algorithms.terms import Entropy, EntropyBand
from agentrl_jax.algorithms.turn_credit import LargestIsOne, TurnKeyed
from agentrl_jax.configfile import from_json, to_json
from agentrl_jax.rows import Evidence, collate
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, Trajectory
from agentrl_jax.workers import InProcess

MARK = 1024  # the k-th token of a record, from 0, has the sampler's log-prob -(k + 1) / MARK


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InProcess()) as runtime:
        yield runtime


@dataclasses.dataclass
class Desk:
    """Takes steps without compiling."""

    runtime: Runtime
    monkeypatch: pytest.MonkeyPatch

    def steps(self, config: PolicyGradientConfig, *batches: Sequence[Group]) -> tuple[Any, list[list[Any]]]:
        """The algorithm, and the microbatches that its learner was given in each step."""
        self.monkeypatch.setattr(ValueModel, "around", lambda model, params, key: params)  # a head would be compiled, and nobody reads it
        algorithm, given, _ = written(config, [], self.runtime, self.monkeypatch)
        state, each = algorithm.init(jax.random.key(0), PARAMS), []
        for batch in batches:
            before = len(given)
            state, _ = algorithm.step(state, batch, self.runtime)
            each.append(given[before:])
        return algorithm, each

    def step(self, config: PolicyGradientConfig, batch: Sequence[Group]) -> tuple[Any, list[Any]]:
        algorithm, (given,) = self.steps(config, batch)
        return algorithm, given


@pytest.fixture
def desk(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(runtime, monkeypatch)


def size(batch: Sequence[Group]) -> int:
    return len(collate(batch).indices.token_row)


def marked(*batches: Sequence[Group]) -> list[list[Group]]:
    """The batches with every token known by its log-prob."""
    count = sum(map(size, batches))
    rest = iter(relabelled([group for batch in batches for group in batch], -np.arange(1, count + 1) / MARK))
    return [[next(rest) for _ in batch] for batch in batches]


def played(*members: Sequence[TurnShape], task: str = "t", **facts: Any) -> list[Group]:
    """One group, solved where the return is above 0, every token known by its log-prob."""
    (group,) = told(grown_groups([members]), **facts)
    judged = tuple(t.replace(success=t.total_reward > 0, task=task, agent="strategist") for t in group.trajectories)
    return marked([Group(task, judged)])[0]


def earning(*rewards: float) -> list[list[TurnShape]]:
    """Members of one turn of one token."""
    return [[(1, 1, False, reward)] for reward in rewards]


def by_token(given: Sequence[Any], values: Callable[[Any], Any], count: int) -> np.ndarray:
    """The sum of what is said of each token in the rows that it stands in; 0 where it was left out."""
    out = np.zeros(count)
    for one in given:
        mask = np.asarray(one.batch.action_mask)
        number = np.rint(-np.asarray(one.batch.sampler_logp)[mask] * MARK).astype(int) - 1
        np.add.at(out, number, np.asarray(values(one), np.float64)[mask])
    return out


def advantages(given: Sequence[Any], count: int) -> np.ndarray:
    return by_token(given, lambda one: one.advantage, count)


def weights(given: Sequence[Any], count: int) -> np.ndarray:
    return by_token(given, lambda one: one.batch.weight, count)


def trained(given: Sequence[Any], count: int) -> np.ndarray:
    """The advantages of what has a weight."""
    return np.where(weights(given, count) != 0, advantages(given, count), 0.0)


def slopes(algorithm: Any, given: Sequence[Any], count: int, gap: float = 0.3) -> np.ndarray:
    """The gradient in each token's log-prob, at log-probs about so far from those before."""
    found = iter(felt(algorithm, given, gap))
    return by_token(given, lambda one: next(found)[1][0], count)


# The base layer


def test_gae_without_a_critics_help_is_the_reward_to_go_whatever_the_values_of_observations(desk: Desk):
    """gamma = lambda = 1 and V = 0 on what was written: the reward to go, with any V on observation tokens."""

    def score(self: Paper, params: Any, batch: Any) -> tuple[Any, ...]:
        return (jnp.where(jnp.asarray(batch.action_mask), 0.0, 1e3),)

    desk.monkeypatch.setattr(Paper, "score", score)
    batch = played([(2, 2, False, 1.0), (3, 1, False, 2.0)], [(2, 1, False, 0.0), (1, 1, True, 0.5)])
    _, given = desk.step(critics.ppo(HEAD, advantage=GAE(whiten=False), **SHAPE), batch)
    assert advantages(given, 5).tolist() == [3.0, 3.0, 2.0, 0.5, 0.5]


@pytest.mark.parametrize("make", [groups.rloo, groups.gspo, groups.cispo])
def test_at_ratio_one_surrogates_agree_under_one_aggregation(make: Callable[..., PolicyGradientConfig], desk: Desk):
    """PPO, GSPO and CISPO have the gradient -A / N in the first update."""
    batch = played([(1, 3, False, 1.0)], [(1, 1, False, 0.0)])
    config = dataclasses.replace(make(rescore=True, **SHAPE), advantage=groups.group_centred, aggregation=token_mean)
    assert slopes(*desk.step(config, batch), 4, gap=0.0) == pytest.approx([-0.125] * 3 + [0.125], abs=1e-6)


def test_icepop_changes_advantages_and_no_weight(desk: Desk):
    """A token whose ratio is outside [.5, 5] has w = 0 and still counts in the mean."""
    batch = played([(1, 3, False, 1.0)], [(1, 2, False, 0.0)])
    # The learner's log-probs are near -2, the sampler's near 0: rho is about .14.
    (_, plain), (_, popped) = (desk.step(ppo_base(rescore=True, mismatch=one, **SHAPE), batch) for one in (None, IcePop(0.1, 0.14)))
    dropped = (advantages(popped, 5) == 0) & (advantages(plain, 5) != 0)
    kept = weights(popped, 5)
    assert 0 < dropped.sum() < 5 and (kept[kept != 0] == weights(plain, 5)[kept != 0]).all() and kept[kept != 0][0] == np.float32(0.2)


# DART


def seen_by(config: PolicyGradientConfig, desk: Desk, *batches: Sequence[Group]) -> list[list[set[bool | None]]]:
    """The outcomes in each group that got credit, by step."""
    seen: list[list[set[bool | None]]] = []

    def note(evidence: Evidence) -> np.ndarray:
        outcomes: dict[int, set[bool | None]] = {}
        for group, trajectory in zip(evidence.trajectory_group.tolist(), evidence.trajectories):
            outcomes.setdefault(group, set()).add(trajectory.success)
        seen.append(list(outcomes.values()))
        return np.zeros(len(evidence.token_row))

    desk.steps(dataclasses.replace(config, advantage=note), *batches)
    return seen


def outcomes(task: str, version: int, *solved: bool) -> Group:
    members = (make_trajectory(make_turn([make_call([1], [2], version=[version])], float(x))).replace(success=x, task=task) for x in solved)
    return Group(task, tuple(members))


def test_after_darts_curation_each_group_has_both_outcomes(desk: Desk):
    """Solved groups go, failed ones get a stored success or go, and a crop keeps both kinds."""
    first = [outcomes("a", 0, True, False), outcomes("b", 0, True, True), outcomes("c", 0, False, False)]
    second = [outcomes("a", 1, False, False), outcomes("b", 1, *[True] * 3, *[False] * 9), outcomes("c", 1, False, True)]
    both = {True, False}
    assert seen_by(gui.dart(**SHAPE), desk, first, second) == [[both], [both, both, both]]


def test_darts_stored_success_may_be_of_any_version(desk: Desk):
    """An all-failed group gets its task's newest success, whatever weights wrote that."""
    first, second = [outcomes("a", 0, True, False)], [outcomes("a", 5, False, False), outcomes("b", 4, True, False)]
    assert seen_by(gui.dart(**SHAPE), desk, first, second) == [[{True, False}], [{True, False}] * 2]


def test_darts_replay_sees_what_the_window_leaves(desk: Desk):
    """A group whose only success is too old is one of failures, and gets that success back or goes."""
    batch = [
        Group("a", (*outcomes("a", 1, True).trajectories, *outcomes("a", 5, False, False).trajectories)),
        outcomes("b", 4, True, False),
    ]
    assert all(one == {True, False} for one in seen_by(gui.dart(**SHAPE), desk, batch)[0])


UNCURATED: dict[str, Any] = {"mismatch": None, "filter": None, "replay": None, **SHAPE}


def test_dart_with_w_one_and_all_steps_is_step_wise_grpo(desk: Desk):
    """Returns 1 (two steps) and 0 (one step): mean 2/3 and std 1/sqrt(3) over the step rows, a mean over steps."""
    batch = played([(2, 2, False, 0.0), (2, 3, False, 1.0)], [(2, 1, False, 0.0)])
    _, given = desk.step(gui.dart(entropy_share=1.0, **UNCURATED), batch)
    assert advantages(given, 6) == pytest.approx([0.57735] * 5 + [-1.1547], abs=1e-5)
    assert weights(given, 6) == pytest.approx([1 / 6] * 2 + [1 / 9] * 3 + [1 / 3], abs=1e-7)


def test_darts_weight_is_held_at_one():
    """w(+.5) = 1 and w(-.5) = e^-.5."""
    correction = gui.dart().mismatch
    assert correction is not None
    weight, keep = correction(jnp.asarray([[0.5, -0.5]]), jnp.zeros((1, 2)), jnp.ones((1, 2), bool), jnp.zeros((1, 2), jnp.int32))
    assert weight[0].tolist() == pytest.approx([1.0, math.exp(-0.5)], rel=1e-6) and keep.all()


def test_steps_that_dart_drops_have_no_gradient(desk: Desk):
    """Of four steps the two of most entropy are trained, KL included; the others not at all."""
    batch = played([(2, 2, False, 0.0), (2, 3, False, 1.0)], [(2, 1, False, 0.0), (1, 2, False, 0.0)])
    found = slopes(*desk.step(gui.dart(entropy_share=0.5, **UNCURATED), batch), 8)
    every = collate(batch)
    entropy = np.sin(1.7 * every.tokens("tokens") + 0.3 * every.indices.token_position)  # what `Paper` says, without its constant
    turn = every.indices.token_turn
    best = np.argsort(-np.bincount(turn, entropy) / np.bincount(turn))[:2]
    assert ((found != 0) == np.isin(turn, best)).all()


# SUPO

SUMMARISED: list[TurnShape] = [(2, 1, False, 0.0), (2, 1, True, 0.0), (2, 1, True, 1.0)]


def test_a_rollout_of_several_contexts_counts_once(desk: Desk):
    """Rewards 1 (three contexts) and 0 (one): mean .5, A = ±.7071; the token mean is that of an unbroken rollout."""
    unbroken: list[TurnShape] = [(new, wrote, False, reward) for new, wrote, _, reward in SUMMARISED]
    for member in (SUMMARISED, unbroken):
        batch = played(member, [(1, 1, False, 0.0)])
        assert len(collate(batch).rows) == (4 if member is SUMMARISED else 2)
        _, given = desk.step(tools.supo(**SHAPE), batch)
        assert advantages(given, 4) == pytest.approx([0.70711] * 3 + [-0.70711], abs=1e-5)
        assert weights(given, 4).tolist() == [0.25] * 4


def test_an_overlong_rollout_counts_and_has_no_gradient(desk: Desk):
    """Returns 1, 0 and an overlong 0: A = 1.1547 and -.5774; without that third rollout ±.7071."""
    (group,) = played(*earning(1.0, 0.0, 0.0))
    cut = dataclasses.replace(group, trajectories=(*group.trajectories[:2], group.trajectories[2].replace(stop_reason="turns")))
    algorithm, given = desk.step(tools.supo(**SHAPE), [cut])
    assert advantages(given, 3)[:2] == pytest.approx([1.1547, -0.57735], abs=1e-4)
    assert weights(given, 3).tolist() == [0.5, 0.5, 0.0]
    assert (slopes(algorithm, given, 3, gap=0.0) != 0).tolist() == [True, True, False]
    _, without = desk.step(tools.supo(**SHAPE), [dataclasses.replace(cut, trajectories=cut.trajectories[:2])])
    assert advantages(without, 3)[:2] == pytest.approx([0.70711, -0.70711], abs=1e-5)


# ActiveVLN


def test_an_episode_that_was_stopped_for_it_earns_nothing_and_stays_in_its_group(desk: Desk):
    """At the goal both; the one that did not stop by itself has reward 0: A = ±.7071, both trained."""
    (group,) = played(*earning(9.0, 9.0), distance=lambda turn, place: 0.0, stopped=lambda turn, place: True)
    (stopped,) = told([dataclasses.replace(group, trajectories=group.trajectories[1:])], stopped=lambda turn, place: False)
    cut = stopped.trajectories[0].replace(stop_reason="turns")
    _, given = desk.step(gui.active_vln(**SHAPE), [dataclasses.replace(group, trajectories=(group.trajectories[0], cut))])
    assert advantages(given, 2) == pytest.approx([0.70711, -0.70711], abs=1e-5) and weights(given, 2).tolist() == [0.5, 0.5]


# UFO


@pytest.mark.parametrize(("attempts", "answers", "solved", "total"), [(3, "xyz", True, 0.25), (5, "xxxxx", False, -0.4)])
def test_ufo_pays_for_early_and_for_new_answers(attempts: int, answers: str, solved: bool, total: float):
    """Right on the third try, all distinct: .25; five times the same wrong answer: -.4; .1 less for each malformed turn."""
    (group,) = told(grown_groups([[[(1, 1, False, 0.0)] * attempts]]), answer=lambda turn, place: answers[place])
    config = critics.ufo(HEAD)
    assert config.rewards is not None
    for formatted, extra in ((True, 0.0), (False, -0.1 * attempts)):
        (one,) = told([group], formatted=lambda turn, place, formatted=formatted: formatted)
        judged = dataclasses.replace(one, trajectories=(one.trajectories[0].replace(success=solved),))
        assert config.rewards(judged, 0).trajectories[0].total_reward == pytest.approx(total + extra, abs=1e-12)


# UI-TARS-2


def test_the_critics_targets_do_not_depend_on_the_policys_lambda(desk: Desk):
    """Critic targets are unchanged when lambda of the policy varies; its advantages are not."""
    found = []
    for alpha in (0.3, 1.5):
        algorithm, given = desk.step(critics.ui_tars_2(HEAD, alpha, warmup=0, **SHAPE), GROUPS)
        assert isinstance(algorithm._critic, Paper)
        found.append((given, algorithm._critic.given))
    (first, targets), (second, others) = found
    assert len(targets) == len(others) > 0 and all(equal(a.target, b.target) for a, b in zip(targets, others))
    assert not all(equal(a.advantage, b.advantage) for a, b in zip(first, second))


# WebAgent-R1


def test_two_turns_and_ten_weigh_the_same(desk: Desk):
    """A = .5 / (.70711 + 1e-4); each rollout has half of the weight, each of its turns the same."""
    batch = played([(1, 3, False, 0.0), (1, 1, False, 1.0)], [(1, 1, False, 0.0)] * 10)
    _, given = desk.step(bare(tools.webagent_r1(**SHAPE)), batch)
    assert advantages(given, 14) == pytest.approx([0.707007] * 4 + [-0.707007] * 10, abs=1e-6)
    assert weights(given, 14) == pytest.approx([1 / 12] * 3 + [0.25] + [0.05] * 10, abs=1e-7)


# ARPO for GUI agents


def test_an_all_failed_group_learns_from_a_stored_success(desk: Desk):
    """R = 1 in the place of the first of eight failures: A = 2.475 and -.3536, with the ratio 1."""
    first, second = marked(played(*earning(1.0, *[0.0] * 7)), played(*earning(*[0.0] * 8)))
    algorithm, (_, given) = desk.steps(gui.arpo_gui(**SHAPE), first, second)
    assert advantages(given, 16) == pytest.approx([2.4749] + [0.0] * 8 + [-0.35355] * 7, abs=1e-4)
    assert slopes(algorithm, given, 16, gap=0.0) == pytest.approx(-advantages(given, 16) / 8, abs=1e-6)
    _, (_, untouched) = desk.steps(gui.arpo_gui(**SHAPE), first, marked(first, first)[1])
    assert advantages(untouched, 16)[8:] == pytest.approx([2.4749] + [-0.35355] * 7, abs=1e-4)


# EPO, strategic reasoning


def test_where_all_turns_weigh_one_it_is_likelihood_averaged_by_turns(desk: Desk):
    """All G = 1: the gradient is that of -log-probs averaged over tokens, turns and dialogues."""
    batch = played([(1, 2, False, 1.0), (1, 1, False, 1.0)], [(1, 2, False, 1.0)])
    config = dialogue.epo_strategic(rewards=None, advantage=TurnKeyed(LargestIsOne(0.0), key=None), **SHAPE)
    assert slopes(*desk.step(config, batch), 5) == pytest.approx([-1 / 8] * 2 + [-1 / 4] * 3, abs=1e-7)


def test_turns_of_weight_nought_have_no_gradient(desk: Desk):
    """A critical first turn of a dialogue without an outcome: G = (1, 0, 0)."""
    (group,) = played([(1, 2, False, 0.0)] * 3, critical=lambda turn, place: place == 0)
    batch = [dataclasses.replace(group, trajectories=(group.trajectories[0].replace(success=True),))]
    assert slopes(*desk.step(dialogue.epo_strategic(**SHAPE), batch), 6) == pytest.approx([-1 / 6] * 2 + [0.0] * 4, abs=1e-7)


def test_a_scale_of_all_judged_rewards_changes_no_weight(desk: Desk):
    """Scaling all rewards by c > 0 leaves the weights, which lie in [-1, 1]."""
    batch = marked(GROUPS)[0]
    count, found = size(batch), []
    for c in (1.0, 7.0, 0.01):
        _, given = desk.step(dialogue.epo_strategic(rewards=JudgedTurns(0.1 * c, mark=c), **SHAPE), batch)
        found.append(advantages(given, count))
    assert found[1] == pytest.approx(found[0], abs=1e-6) and found[2] == pytest.approx(found[0], abs=1e-6)
    assert np.abs(found[0]).max() == 1.0


# EPO, entropy-regularised


def both_steps(desk: Desk, term: Any) -> list[list[Any]]:
    """What is felt in each of two steps; the first has no history."""
    config = dialogue.epo(**SHAPE)
    algorithm, each = desk.steps(dataclasses.replace(config, regularisers={**config.regularisers, "entropy": term}), GROUPS, GROUPS)
    return [felt(algorithm, given) for given in each]


def test_inside_the_band_there_is_the_entropy_bonus_alone(desk: Desk):
    """H inside the band, or without history: loss and gradient of the base with its entropy bonus."""
    inside, bonus = (both_steps(desk, term) for term in (EntropyBand(0.5, low=0.0, high=1e9), Entropy(0.5)))
    for a, b in zip(inside, bonus):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), a, b)


def test_outside_the_released_band_only_the_loss_moves(desk: Desk):
    """By c_ent c_s w alpha, and by c_ent c_s w without history; no gradient."""
    band = EntropyBand(0.5, smoothing=0.7, low=1e6, high=1e7, height=0.2, phase=PhaseWeight(), released=True)
    outside, bonus = (both_steps(desk, term) for term in (band, Entropy(0.5)))
    for step, (a, b) in enumerate(zip(outside, bonus)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), [one[1] for one in a], [one[1] for one in b])
        more = sum(float(one[0]) for one in a) - sum(float(one[0]) for one in b)
        assert more == pytest.approx(0.5 * 0.7 * PhaseWeight()(step) * (0.2 if step else 1.0), abs=1e-4)


# ScalingInter-RL


def test_an_episode_that_the_cap_cut_keeps_its_reward(desk: Desk):
    """What a cap on turns cut is credited and weighed like any other episode."""
    cut = [dataclasses.replace(g, trajectories=tuple(t.replace(stop_reason="turns") for t in g.trajectories)) for g in GROUPS]
    (_, ended), (_, capped) = (desk.step(dialogue.scaling_inter(**SHAPE), batch) for batch in (GROUPS, cut))
    assert len(ended) == len(capped) > 0
    assert all(equal((a.advantage, a.batch.weight), (b.advantage, b.batch.weight)) for a, b in zip(ended, capped))


# G-RA


def worth(outcome: float, *steps: float) -> Trajectory:
    parts = [{"tools": step} for step in steps[:-1]] + [{"tools": steps[-1], "outcome": outcome}]
    return make_trajectory(*(dataclasses.replace(make_turn([make_call([1], [2])], sum(p.values())), rewards=p) for p in parts))


def test_below_the_gate_steps_change_nothing_and_the_total_grows_with_the_outcome(desk: Desk):
    """Outcomes up to the gate: no step reward counts; with rewards above 0 the total is monotone in the outcome."""
    config = dialogue.gated(("outcome", "tools"), (0.5,), **SHAPE)
    steps: list[tuple[float, float]] = [(0.0, 0.0), (0.3, 0.4), (9.0, -5.0)]
    batches = [marked([Group("a", (worth(0.2, *one), worth(0.5, *one[::-1])))])[0] for one in steps]
    found = [advantages(desk.step(config, batch)[1], 4).tolist() for batch in batches]
    assert found[0] == found[1] == found[2] and found[0] == pytest.approx([-0.70711] * 2 + [0.70711] * 2, abs=1e-5)
    gate = Gate(("outcome", "tools"), (0.5,))
    totals = [gate(Group("a", (worth(x, 0.3, 0.4),)), 0).trajectories[0].total_reward for x in np.linspace(-2, 2, 41)]
    assert all(a <= b for a, b in itertools.pairwise(totals)) and totals[-1] - totals[0] == pytest.approx(4.7, abs=1e-9)


# SimpleTIR


def test_a_void_rollout_moves_its_mates_advantages_and_is_not_trained(desk: Desk):
    """Returns 1 1 0 0: ±.866; with a void 0 beside them: 1.0954 and -.7303, and no gradient of its own."""

    def of(*rewards: float) -> list[Group]:
        (group,) = played(*earning(*rewards), void=lambda turn, place: False)
        (void,) = told([dataclasses.replace(group, trajectories=group.trajectories[4:])], void=lambda turn, place: True)
        return [dataclasses.replace(group, trajectories=(*group.trajectories[:4], *void.trajectories))]

    algorithm, given = desk.step(tools.simpletir(**SHAPE), of(1.0, 1.0, 0.0, 0.0, 0.0))
    assert advantages(given, 5)[:4] == pytest.approx([1.09545] * 2 + [-0.7303] * 2, abs=1e-4)
    assert weights(given, 5).tolist() == [0.25] * 4 + [0.0] and slopes(algorithm, given, 5)[4] == 0.0
    _, without = desk.step(tools.simpletir(**SHAPE), of(1.0, 1.0, 0.0, 0.0))
    _, grpo = desk.step(ppo_base(PPO(0.2, 0.28, 3.0), **SHAPE), of(1.0, 1.0, 0.0, 0.0))
    assert advantages(without, 4) == pytest.approx([0.86602] * 2 + [-0.86602] * 2, abs=1e-4)
    assert len(without) == len(grpo) and all(equal(a, b) for a, b in zip(without, grpo))


# IGPO


def test_equal_outcomes_are_told_apart_by_what_turns_found_out(desk: Desk):
    """Gains of .3 and .1 before the same outcome: z = ±.7071, and nothing at the last turn."""
    (group,) = played(*[[(1, 1, False, 0.0), (1, 1, False, 1.0)]] * 2)
    chances = ((0.1, 0.4), (0.1, 0.2))
    said = [
        told([dataclasses.replace(group, trajectories=(t,))], gold_logp=lambda turn, place, p=p: math.log(p[place]))[0].trajectories[0]
        for t, p in zip(group.trajectories, chances)
    ]
    for gamma in (0.0, 1.0):
        config = bare(tools.igpo(gamma, joint=False, **SHAPE))
        _, given = desk.step(config, [dataclasses.replace(group, trajectories=tuple(said))])
        assert advantages(given, 4) == pytest.approx([0.7071, 0.0, -0.7071, 0.0], abs=1e-4)


# SCoRe


def test_the_first_stage_gives_the_first_attempt_no_reward_and_the_second_the_bonus(desk: Desk):
    """Attempts 0 -> 1 and 1 -> 0: A = (0, r2) with KL (.1 + .01, .01); then (r1, r2 + 10 (r2 - r1)) with KL .01 on both."""
    batch = played([(1, 1, False, 0.0), (1, 1, False, 1.0)], [(1, 1, False, 1.0), (1, 1, False, 0.0)])
    _, (first, second) = desk.steps(dialogue.self_correcting(1, **SHAPE), batch, batch)

    def held(given: Sequence[Any]) -> np.ndarray:
        return by_token(given, lambda one: one.data["kl"]["coefficient"], 4)

    assert advantages(first, 4).tolist() == [0, 1, 0, 0] and advantages(second, 4).tolist() == [0, 11, 1, -10]
    assert held(first) == pytest.approx([0.11, 0.01, 0.11, 0.01]) and held(second) == pytest.approx([0.01] * 4)


# ARPO


def test_hard_and_soft_attribution_have_the_same_gradient_at_ratio_one(desk: Desk):
    """Summed over the branches that share a token, under a sum over tokens; on what is shared hard is the mean of soft."""
    root = make_call([1, 2], [3, 4], logp=[-1 / MARK, -2 / MARK])

    def member(first: Call, number: int, reward: float) -> Trajectory:
        last = make_call([1, 2, 3, 4, 9], [4 + number], logp=[-number / MARK])
        return make_trajectory(make_turn([first]), make_turn([last], reward)).replace(success=reward > 0)

    own = make_call([1, 2], [3, 4], logp=[-6 / MARK, -7 / MARK])
    batch = [Group("a", (member(root, 3, 1.0), member(root, 4, 0.0), member(own, 5, 5.0)))]
    soft, hard = (
        desk.step(tools.arpo(hard=one, aggregation=TokenSum(1.0), rescore=True, epochs=1, **SHAPE), batch) for one in (False, True)
    )
    assert slopes(*hard, 7, gap=0.0) == pytest.approx(slopes(*soft, 7, gap=0.0), abs=1e-6)
    assert advantages(hard[1], 7) == pytest.approx(advantages(soft[1], 7), abs=1e-6)
    shared = np.unique(np.concatenate([one.advantage[np.isclose(one.batch.sampler_logp, -1 / MARK)] for one in hard[1]]))
    assert len(shared) == 1 and shared[0] == pytest.approx((1.0 + 0.0 - 4.0) / 2 / 7**0.5, abs=1e-5)  # mean 2, std sqrt 7


# SPEAR


def test_a_replay_of_coefficient_nought_is_the_base(desk: Desk):
    """c = 0: the base to the bit; at c = 1 there is more, and nothing of it has an advantage below 0."""

    def of(*auxiliaries: SelfImitation) -> list[Any]:
        return desk.steps(tools.spear(12.0, tools=False, auxiliaries=auxiliaries, **SHAPE), GROUPS, GROUPS)[1][1]

    base, off, on = of(), *(of(SelfImitation(c, PositiveReplay(size=2, needs_tool=False))) for c in (0.0, 1.0))
    assert len(base) == len(off) > 0 and all(equal(a, b) for a, b in zip(base, off)) and len(on) > len(base)
    replayed = np.concatenate([one.advantage[one.batch.action_mask] for one in on[len(base) :]])
    assert (replayed > 0).any() and (replayed >= 0).all()


# The Practitioner's Guide


def test_single_and_dense_rewards_are_one_where_only_the_last_turn_pays(desk: Desk):
    """Single and dense placement agree, and leave-one-out gives ±1."""
    (group,) = played([(1, 2, False, 0.0), (1, 1, False, 1.0)], [(1, 1, False, 0.0)] * 2, full_score=lambda turn, place: 1.0)
    (_, dense), (_, single) = (desk.step(critics.practitioners_rloo(one, **SHAPE), [group]) for one in (True, False))
    assert len(dense) == len(single) > 0 and all(equal(a, b) for a, b in zip(dense, single))
    assert advantages(dense, 5).tolist() == [1.0] * 3 + [-1.0] * 2  # n / (n - 1) times ±.5


# BFS-Prover-V2


def test_only_steps_on_the_accepted_path_are_trained(desk: Desk):
    """Weight 1 on the path, 0 off it: -1 / N and exactly 0."""
    batch = played([(1, 2, False, 0.0)] * 3, weight=lambda turn, place: float(place != 1))
    found = slopes(*desk.step(dialogue.bfs_prover(0.0, 1.0, **SHAPE), batch), 6)
    assert found == pytest.approx([-1 / 6] * 2 + [0.0] * 2 + [-1 / 6] * 2, abs=1e-7)


# VLA-RL


def test_an_action_of_seven_tokens_is_one_step(desk: Desk):
    """At ratio 1 each of its tokens has the gradient of the sum of their log-probs: -A over the number of steps."""
    batch = played([(1, 7, False, 0.0), (1, 7, False, 1.0)])
    algorithm, given = desk.step(critics.vla_rl(HEAD, warmup=0, rescore=True, **SHAPE), batch)
    credit = advantages(given, 14)
    assert len(np.unique(credit)) == 2
    assert slopes(algorithm, given, 14, gap=0.0) == pytest.approx(-credit / 2, abs=1e-6)


def test_the_warm_up_gives_the_policy_nothing(desk: Desk):
    """In the warm-up the critic alone has updates."""
    algorithm, each = desk.steps(critics.vla_rl(HEAD, warmup=2, **SHAPE), GROUPS, GROUPS, GROUPS)
    assert isinstance(algorithm._critic, Paper)
    assert [len(given) > 0 for given in each] == [False, False, True] and len(algorithm._critic.given) == 3 * len(each[2])


# All methods

EVERY = pytest.mark.parametrize("name", METHODS)
WIDE = {**SHAPE, "bin_length": 64}
BY_ROWS = {"gspo", "spear"}  # their aggregation is over rows


def from_the_start(name: str, **settings: Any) -> PolicyGradientConfig:
    """The method without a warm-up of its critic."""
    config = METHODS[name](**settings)
    return dataclasses.replace(config, critic=dataclasses.replace(config.critic, warmup=0)) if config.critic else config


def by_words_alone(self: Paper, params: Any, batch: Any) -> tuple[Any, ...]:
    """What `Paper` says, wherever a token stands."""
    rule = np.sin(1.7 * np.asarray(batch.tokens)).astype(np.float32)
    return tuple(jnp.asarray(x) for x in (0.1 * rule - 2.0, 2.0 + rule)[: self._outputs])


def with_more_to_read(batch: Sequence[Group], more: int) -> list[Group]:
    """The groups with so many further tokens before what is new in each prompt."""

    def longer(trajectory: Trajectory) -> Trajectory:
        turns, old, new = [], np.zeros(0, np.int32), np.zeros(0, np.int32)
        for turn in trajectory.turns:
            (call,) = turn.calls
            made = dataclasses.replace(call, prompt=np.concatenate([new, np.full(more, 5, np.int32), call.prompt[len(old) :]]))
            turns.append(dataclasses.replace(turn, calls=(made,)))
            old, new = call.ids, made.ids
        return trajectory.replace(turns=tuple(turns))

    return [dataclasses.replace(group, trajectories=tuple(map(longer, group.trajectories))) for group in batch]


@EVERY
def test_neither_observations_nor_rows_change_what_a_token_is_told(name: str, desk: Desk):
    """More observation tokens change no advantage and no weight; a row for each turn changes no statistic."""
    desk.monkeypatch.setattr(Paper, "score", by_words_alone)
    (batch,) = marked(GROUPS)
    count, config = size(batch), from_the_start(name, **{**WIDE, "epochs": 1})
    plain, more = (desk.step(config, one)[1] for one in (batch, with_more_to_read(batch, 3)))
    desk.monkeypatch.setattr(Call, "extends", lambda self, other: False)
    assert len(collate(batch).rows) > 24
    split = desk.step(config, batch)[1]
    credit = trained(plain, count)
    assert credit.any()
    for other in (more, split):
        assert trained(other, count) == pytest.approx(credit, abs=1e-6)
        if other is more or name not in BY_ROWS:
            there = credit != 0
            assert weights(other, count)[there] == pytest.approx(weights(plain, count)[there], abs=1e-8)


def later_turns(evidence: Evidence) -> np.ndarray:
    return place_of_turn(evidence)[evidence.token_turn] > 0


@EVERY
def test_what_a_mask_takes_has_no_weight_and_still_counts(name: str, desk: Desk):
    """Without any weight a token has exactly no gradient; the others' advantages stay."""
    (batch,) = marked(GROUPS)
    count, config = size(batch), from_the_start(name, **{**SHAPE, "epochs": 1})
    plain, masked = (desk.step(dataclasses.replace(config, mask=mask), batch)[1] for mask in (None, later_turns))
    every, left = collate(batch).indices, weights(masked, count)
    later = place_of_turn(every)[every.token_turn] > 0
    assert left.any() and not left[~later].any()
    there = left != 0
    assert advantages(masked, count)[there] == pytest.approx(advantages(plain, count)[there], abs=1e-7)


@EVERY
def test_after_any_rewriting_of_contexts_the_first_ratio_is_one(name: str, desk: Desk):
    """Where every turn is a row of its own, what is held against is what the learner says of those very rows."""
    desk.monkeypatch.setattr(Call, "extends", lambda self, other: False)
    algorithm, given = desk.step(from_the_start(name, **{**SHAPE, "rescore": True}), GROUPS)
    assert given
    for one in given:
        mask = one.batch.action_mask
        assert np.array_equal(np.asarray(algorithm._learner.score(None, one.batch)[0])[mask], one.proximal_logp[mask])


@pytest.mark.parametrize("name", ["dapo", "gspo", "cispo", "aepo", "dart", "score", "spear", "ppo", "igpo"])
def test_at_ratio_one_a_methods_gradient_is_that_of_its_advantages(name: str, desk: Desk):
    """Whatever the surrogate, the first gradient in a log-prob is -weight times A."""
    config = bare(METHODS[name](**{**SHAPE, "rescore": True, "epochs": 1}))
    algorithm, given = desk.step(config, GROUPS)
    assert given
    for one, (_, (slope, _)) in zip(given, felt(algorithm, given, gap=0.0)):
        np.testing.assert_allclose(slope, -one.batch.weight * one.advantage, atol=1e-7, rtol=1e-5)


@EVERY
def test_a_methods_config_is_read_back_as_it_was(name: str):
    """Config round-trip of every method."""
    data = to_json(METHODS[name](**SHAPE))
    again = from_json(json.loads(json.dumps(data)))
    assert isinstance(again, PolicyGradientConfig) and to_json(again) == data
