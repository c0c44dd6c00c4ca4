"""Numerical consequences of each method's paper or code, checked on whole steps."""

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
from support.fixtures import (
    TurnShape,
    make_call,
    make_trajectory,
    make_turn,
    random_groups,
    with_info,
)
from support.method_runs import (
    DISTINCT_METHODS,
    GROUPS,
    HEAD,
    METHODS,
    PARAMS,
    SHAPE,
    RecordingLearner,
    losses_and_gradients,
    ppo_base,
    recorded_run,
    trees_equal,
    without_regularizers,
)

from agentrl_jax.algorithms.advantages.gae import GAE
from agentrl_jax.algorithms.advantages.grouping import turn_index
from agentrl_jax.algorithms.advantages.token_weights import TrajectorySum, token_mean
from agentrl_jax.algorithms.advantages.turn import ScaleByMax, TurnGroupedBy
from agentrl_jax.algorithms.experience.rewards import RewardGate
from agentrl_jax.algorithms.experience.schedules import EPOPhaseWeight
from agentrl_jax.algorithms.experience.self_imitation import PositiveReplay
from agentrl_jax.algorithms.experience.turn_rewards import CriticalTurnReward
from agentrl_jax.algorithms.losses.entropy_band import EntropyBand
from agentrl_jax.algorithms.losses.importance import IcePop
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import EntropyBonus
from agentrl_jax.algorithms.methods import actor_critic, group_relative, gui, multi_turn, tool_use
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.auxiliary import SelfImitation, replace_group_logp
from agentrl_jax.algorithms.policy_gradient.critic import ValueModel
from agentrl_jax.learner.sequences import CreditInputs, collate
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage.config_json import from_json, to_json
from agentrl_jax.trajectories import Call, Group, Trajectory
from agentrl_jax.workers.pool import InlinePool

MARK = 1024  # the k-th token of a batch, from 0, has the sampler's log-prob -(k + 1) / MARK


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InlinePool()) as runtime:
        yield runtime


@dataclasses.dataclass
class StepRunner:
    """Takes steps without compiling."""

    runtime: Runtime
    monkeypatch: pytest.MonkeyPatch

    def steps(
        self, config: PolicyGradientConfig, *batches: Sequence[Group]
    ) -> tuple[Any, list[list[Any]]]:
        """The algorithm, and the microbatches of its policy updates in each step."""
        self.monkeypatch.setattr(
            ValueModel, "init_from_policy", lambda model, params, key: params
        )  # a head would be compiled, and its values are not used
        algorithm, microbatches, _ = recorded_run(config, [], self.runtime, self.monkeypatch)
        state, microbatches_by_step = algorithm.init(jax.random.key(0), PARAMS), []
        for batch in batches:
            before = len(microbatches)
            state, _ = algorithm.step(state, batch, self.runtime)
            microbatches_by_step.append(microbatches[before:])
        return algorithm, microbatches_by_step

    def step(self, config: PolicyGradientConfig, batch: Sequence[Group]) -> tuple[Any, list[Any]]:
        algorithm, (microbatches,) = self.steps(config, batch)
        return algorithm, microbatches


@pytest.fixture
def runner(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> StepRunner:
    return StepRunner(runtime, monkeypatch)


def size(batch: Sequence[Group]) -> int:
    return len(collate(batch).token_index.token_sequence)


def marked(*batches: Sequence[Group]) -> list[list[Group]]:
    """The batches with every token identified by its log-prob."""
    count = sum(map(size, batches))
    relabeled = iter(
        replace_group_logp(
            [group for batch in batches for group in batch], -np.arange(1, count + 1) / MARK
        )
    )
    return [[next(relabeled) for _ in batch] for batch in batches]


def one_group(*members: Sequence[TurnShape], task: str = "t", **info_fields: Any) -> list[Group]:
    """One group, solved where the return is above 0, with every token identified by its
    log-prob.
    """
    (group,) = with_info(random_groups([members]), **info_fields)
    trajectories = tuple(
        t.replace(success=t.total_reward > 0, task=task, agent="strategist")
        for t in group.trajectories
    )
    return marked([Group(task, trajectories)])[0]


def earning(*rewards: float) -> list[list[TurnShape]]:
    """Trajectories of one turn of one token."""
    return [[(1, 1, False, reward)] for reward in rewards]


def by_token(microbatches: Sequence[Any], values: Callable[[Any], Any], count: int) -> np.ndarray:
    """The sum of a token's values over the rows that contain it; 0 where it is in none."""
    out = np.zeros(count)
    for microbatch in microbatches:
        mask = np.asarray(microbatch.batch.action_mask)
        number = np.rint(-np.asarray(microbatch.batch.sampler_logp)[mask] * MARK).astype(int) - 1
        np.add.at(out, number, np.asarray(values(microbatch), np.float64)[mask])
    return out


def advantages(microbatches: Sequence[Any], count: int) -> np.ndarray:
    return by_token(microbatches, lambda microbatch: microbatch.advantage, count)


def weights(microbatches: Sequence[Any], count: int) -> np.ndarray:
    return by_token(microbatches, lambda microbatch: microbatch.batch.weight, count)


def trained(microbatches: Sequence[Any], count: int) -> np.ndarray:
    """The advantages of the tokens that have a weight."""
    return np.where(weights(microbatches, count) != 0, advantages(microbatches, count), 0.0)


def slopes(algorithm: Any, microbatches: Sequence[Any], count: int, gap: float = 0.3) -> np.ndarray:
    """The gradient in each token's log-prob, at log-probs about `gap` away from the
    proximal ones.
    """
    gradients = iter(losses_and_gradients(algorithm, microbatches, gap))
    return by_token(microbatches, lambda microbatch: next(gradients)[1][0], count)


# PPO and its mismatch corrections


def test_gae_with_values_of_zero_is_the_reward_to_go_whatever_the_values_of_observations(
    runner: StepRunner,
):
    """gamma = lambda = 1 and V = 0 on action tokens: the reward to go, with any V on observation
    tokens.
    """

    def score(self: RecordingLearner, params: Any, batch: Any) -> tuple[Any, ...]:
        return (jnp.where(jnp.asarray(batch.action_mask), 0.0, 1e3),)

    runner.monkeypatch.setattr(RecordingLearner, "score", score)
    batch = one_group(
        [(2, 2, False, 1.0), (3, 1, False, 2.0)], [(2, 1, False, 0.0), (1, 1, True, 0.5)]
    )
    _, microbatches = runner.step(
        actor_critic.ppo(HEAD, advantage=GAE(whiten=False), **SHAPE), batch
    )
    assert advantages(microbatches, 5).tolist() == [3.0, 3.0, 2.0, 0.5, 0.5]


@pytest.mark.parametrize("make", [group_relative.rloo, group_relative.gspo, group_relative.cispo])
def test_at_ratio_one_surrogates_agree_under_one_aggregation(
    make: Callable[..., PolicyGradientConfig], runner: StepRunner
):
    """PPO, GSPO and CISPO have the gradient -A / N in the first update."""
    batch = one_group([(1, 3, False, 1.0)], [(1, 1, False, 0.0)])
    config = dataclasses.replace(
        make(rescore=True, **SHAPE), advantage=group_relative.group_centered, aggregation=token_mean
    )
    assert slopes(*runner.step(config, batch), 4, gap=0.0) == pytest.approx(
        [-0.125] * 3 + [0.125], abs=1e-6
    )


def test_icepop_changes_advantages_and_no_weight(runner: StepRunner):
    """A token whose ratio is outside [.5, 5] has w = 0 and still counts in the mean."""
    batch = one_group([(1, 3, False, 1.0)], [(1, 2, False, 0.0)])
    # The learner's log-probs are near -2, the sampler's near 0: rho is about .14.
    (_, plain), (_, popped) = (
        runner.step(ppo_base(rescore=True, mismatch=correction, **SHAPE), batch)
        for correction in (None, IcePop(0.1, 0.14))
    )
    dropped = (advantages(popped, 5) == 0) & (advantages(plain, 5) != 0)
    popped_weights = weights(popped, 5)
    assert (
        0 < dropped.sum() < 5
        and (popped_weights[popped_weights != 0] == weights(plain, 5)[popped_weights != 0]).all()
        and popped_weights[popped_weights != 0][0] == np.float32(0.2)
    )


# DART


def credited_outcomes(
    config: PolicyGradientConfig, runner: StepRunner, *batches: Sequence[Group]
) -> list[list[set[bool | None]]]:
    """The outcomes in each credited group, by step."""
    outcomes_by_step: list[list[set[bool | None]]] = []

    def record_outcomes(inputs: CreditInputs) -> np.ndarray:
        outcomes: dict[int, set[bool | None]] = {}
        for group, trajectory in zip(inputs.trajectory_group.tolist(), inputs.trajectories):
            outcomes.setdefault(group, set()).add(trajectory.success)
        outcomes_by_step.append(list(outcomes.values()))
        return np.zeros(len(inputs.token_sequence))

    runner.steps(dataclasses.replace(config, advantage=record_outcomes), *batches)
    return outcomes_by_step


def outcomes(task: str, version: int, *solved: bool) -> Group:
    members = (
        make_trajectory(make_turn([make_call([1], [2], version=[version])], float(x))).replace(
            success=x, task=task
        )
        for x in solved
    )
    return Group(task, tuple(members))


def test_after_darts_curation_each_group_has_both_outcomes(runner: StepRunner):
    """Solved groups are dropped, failed ones get a stored success or are dropped, and a subsample
    has both outcomes.
    """
    first = [
        outcomes("a", 0, True, False),
        outcomes("b", 0, True, True),
        outcomes("c", 0, False, False),
    ]
    second = [
        outcomes("a", 1, False, False),
        outcomes("b", 1, *[True] * 3, *[False] * 9),
        outcomes("c", 1, False, True),
    ]
    both = {True, False}
    assert credited_outcomes(gui.dart(**SHAPE), runner, first, second) == [
        [both],
        [both, both, both],
    ]


def test_darts_stored_success_may_be_of_any_version(runner: StepRunner):
    """An all-failed group gets its task's newest success, whatever weights sampled it."""
    first, second = (
        [outcomes("a", 0, True, False)],
        [outcomes("a", 5, False, False), outcomes("b", 4, True, False)],
    )
    assert credited_outcomes(gui.dart(**SHAPE), runner, first, second) == [
        [{True, False}],
        [{True, False}] * 2,
    ]


def test_darts_replay_comes_after_the_version_window(runner: StepRunner):
    """A group whose only success is too old counts as all-failed, and gets that success back or is
    dropped.
    """
    batch = [
        Group(
            "a",
            (*outcomes("a", 1, True).trajectories, *outcomes("a", 5, False, False).trajectories),
        ),
        outcomes("b", 4, True, False),
    ]
    assert all(
        outcomes_of_group == {True, False}
        for outcomes_of_group in credited_outcomes(gui.dart(**SHAPE), runner, batch)[0]
    )


UNCURATED: dict[str, Any] = {"mismatch": None, "filter": None, "replay": None, **SHAPE}


def test_dart_with_w_one_and_all_steps_is_step_wise_grpo(runner: StepRunner):
    """Returns 1 (two steps) and 0 (one step): mean 2/3 and std 1/sqrt(3) over the steps, and a mean
    over steps.
    """
    batch = one_group([(2, 2, False, 0.0), (2, 3, False, 1.0)], [(2, 1, False, 0.0)])
    _, microbatches = runner.step(gui.dart(entropy_fraction=1.0, **UNCURATED), batch)
    assert advantages(microbatches, 6) == pytest.approx([0.57735] * 5 + [-1.1547], abs=1e-5)
    assert weights(microbatches, 6) == pytest.approx([1 / 6] * 2 + [1 / 9] * 3 + [1 / 3], abs=1e-7)


def test_darts_weight_is_truncated_at_one():
    """w(+.5) = 1 and w(-.5) = e^-.5."""
    correction = gui.dart().mismatch
    assert correction is not None
    weight, keep = correction(
        jnp.asarray([[0.5, -0.5]]),
        jnp.zeros((1, 2)),
        jnp.ones((1, 2), bool),
        jnp.zeros((1, 2), jnp.int32),
    )
    assert weight[0].tolist() == pytest.approx([1.0, math.exp(-0.5)], rel=1e-6) and keep.all()


def test_steps_that_dart_drops_have_no_gradient(runner: StepRunner):
    """Of four steps the two of highest entropy are trained, KL included; the others have no
    gradient.
    """
    batch = one_group(
        [(2, 2, False, 0.0), (2, 3, False, 1.0)], [(2, 1, False, 0.0), (1, 2, False, 0.0)]
    )
    gradients = slopes(*runner.step(gui.dart(entropy_fraction=0.5, **UNCURATED), batch), 8)
    collated = collate(batch)
    entropy = np.sin(
        1.7 * collated.token_values("tokens") + 0.3 * collated.token_index.token_position
    )  # the entropy of `RecordingLearner`, without its constant
    turn = collated.token_index.token_turn
    best = np.argsort(-np.bincount(turn, entropy) / np.bincount(turn))[:2]
    assert ((gradients != 0) == np.isin(turn, best)).all()


# SUPO

SUMMARISED: list[TurnShape] = [(2, 1, False, 0.0), (2, 1, True, 0.0), (2, 1, True, 1.0)]


def test_a_rollout_of_several_contexts_counts_once(runner: StepRunner):
    """Rewards 1 (three contexts) and 0 (one): mean .5, A = ±.7071; the token mean is that of an
    unbroken rollout.
    """
    unbroken: list[TurnShape] = [
        (new, wrote, False, reward) for new, wrote, _, reward in SUMMARISED
    ]
    for member in (SUMMARISED, unbroken):
        batch = one_group(member, [(1, 1, False, 0.0)])
        assert len(collate(batch).sequences) == (4 if member is SUMMARISED else 2)
        _, microbatches = runner.step(tool_use.supo(**SHAPE), batch)
        assert advantages(microbatches, 4) == pytest.approx([0.70711] * 3 + [-0.70711], abs=1e-5)
        assert weights(microbatches, 4).tolist() == [0.25] * 4


def test_an_overlong_rollout_counts_in_its_group_and_has_no_gradient(runner: StepRunner):
    """Returns 1, 0 and an overlong 0: A = 1.1547 and -.5774; without that third rollout ±.7071."""
    (group,) = one_group(*earning(1.0, 0.0, 0.0))
    cut = dataclasses.replace(
        group,
        trajectories=(*group.trajectories[:2], group.trajectories[2].replace(stop_reason="turns")),
    )
    algorithm, microbatches = runner.step(tool_use.supo(**SHAPE), [cut])
    assert advantages(microbatches, 3)[:2] == pytest.approx([1.1547, -0.57735], abs=1e-4)
    assert weights(microbatches, 3).tolist() == [0.5, 0.5, 0.0]
    assert (slopes(algorithm, microbatches, 3, gap=0.0) != 0).tolist() == [True, True, False]
    _, without = runner.step(
        tool_use.supo(**SHAPE), [dataclasses.replace(cut, trajectories=cut.trajectories[:2])]
    )
    assert advantages(without, 3)[:2] == pytest.approx([0.70711, -0.70711], abs=1e-5)


# ActiveVLN


def test_an_episode_stopped_by_a_limit_has_no_reward_and_stays_in_its_group(runner: StepRunner):
    """Both reach the goal; the one that a limit stopped has reward 0: A = ±.7071, both trained."""
    (group,) = one_group(
        *earning(9.0, 9.0), distance=lambda turn, index: 0.0, stopped=lambda turn, index: True
    )
    (stopped,) = with_info(
        [dataclasses.replace(group, trajectories=group.trajectories[1:])],
        stopped=lambda turn, index: False,
    )
    cut = stopped.trajectories[0].replace(stop_reason="turns")
    _, microbatches = runner.step(
        gui.active_vln(**SHAPE),
        [dataclasses.replace(group, trajectories=(group.trajectories[0], cut))],
    )
    assert advantages(microbatches, 2) == pytest.approx([0.70711, -0.70711], abs=1e-5) and weights(
        microbatches, 2
    ).tolist() == [0.5, 0.5]


# UFO


@pytest.mark.parametrize(
    ("attempts", "answers", "solved", "total"), [(3, "xyz", True, 0.25), (5, "xxxxx", False, -0.4)]
)
def test_ufo_rewards_early_solutions_and_penalizes_repeated_answers(
    attempts: int, answers: str, solved: bool, total: float
):
    """Solved at the third attempt, all distinct: .25; five times the same wrong answer: -.4; .1
    less for each malformed turn.
    """
    (group,) = with_info(
        random_groups([[[(1, 1, False, 0.0)] * attempts]]),
        answer=lambda turn, index: answers[index],
    )
    config = actor_critic.ufo(HEAD)
    assert config.rewards is not None
    for formatted, extra in ((True, 0.0), (False, -0.1 * attempts)):
        (formatted_group,) = with_info(
            [group], formatted=lambda turn, index, formatted=formatted: formatted
        )
        with_outcome = dataclasses.replace(
            formatted_group, trajectories=(formatted_group.trajectories[0].replace(success=solved),)
        )
        assert config.rewards(with_outcome, 0).trajectories[0].total_reward == pytest.approx(
            total + extra, abs=1e-12
        )


# UI-TARS-2


def test_the_critics_targets_do_not_depend_on_the_policys_lambda(runner: StepRunner):
    """Critic targets are unchanged when lambda of the policy varies; its advantages are not."""
    runs = []
    for alpha in (0.3, 1.5):
        algorithm, microbatches = runner.step(
            actor_critic.ui_tars_2(HEAD, alpha, warmup=0, **SHAPE), GROUPS
        )
        assert isinstance(algorithm._critic_learner, RecordingLearner)
        runs.append((microbatches, algorithm._critic_learner.microbatches))
    (first, targets), (second, other_targets) = runs
    assert len(targets) == len(other_targets) > 0 and all(
        trees_equal(a.target, b.target) for a, b in zip(targets, other_targets)
    )
    assert not all(trees_equal(a.advantage, b.advantage) for a, b in zip(first, second))


# WebAgent-R1


def test_two_turns_and_ten_have_the_same_weight(runner: StepRunner):
    """A = .5 / (.70711 + 1e-4); each rollout has half of the weight, and its turns share that
    equally.
    """
    batch = one_group([(1, 3, False, 0.0), (1, 1, False, 1.0)], [(1, 1, False, 0.0)] * 10)
    _, microbatches = runner.step(without_regularizers(tool_use.webagent_r1(**SHAPE)), batch)
    assert advantages(microbatches, 14) == pytest.approx(
        [0.707007] * 4 + [-0.707007] * 10, abs=1e-6
    )
    assert weights(microbatches, 14) == pytest.approx([1 / 12] * 3 + [0.25] + [0.05] * 10, abs=1e-7)


# ARPO for GUI agents


def test_an_all_failed_group_learns_from_a_stored_success(runner: StepRunner):
    """R = 1 instead of the first of eight failures: A = 2.475 and -.3536, at ratio 1."""
    first, second = marked(one_group(*earning(1.0, *[0.0] * 7)), one_group(*earning(*[0.0] * 8)))
    algorithm, (_, microbatches) = runner.steps(gui.arpo_gui(**SHAPE), first, second)
    assert advantages(microbatches, 16) == pytest.approx(
        [2.4749] + [0.0] * 8 + [-0.35355] * 7, abs=1e-4
    )
    assert slopes(algorithm, microbatches, 16, gap=0.0) == pytest.approx(
        -advantages(microbatches, 16) / 8, abs=1e-6
    )
    _, (_, untouched) = runner.steps(gui.arpo_gui(**SHAPE), first, marked(first, first)[1])
    assert advantages(untouched, 16)[8:] == pytest.approx([2.4749] + [-0.35355] * 7, abs=1e-4)


# EPO, strategic reasoning


def test_with_all_turn_weights_one_it_is_likelihood_averaged_by_turns(runner: StepRunner):
    """All G = 1: the gradient is that of -log-probs averaged over tokens, turns and dialogues."""
    batch = one_group([(1, 2, False, 1.0), (1, 1, False, 1.0)], [(1, 2, False, 1.0)])
    config = multi_turn.epo_strategic(
        rewards=None, advantage=TurnGroupedBy(ScaleByMax(0.0), key=None), **SHAPE
    )
    assert slopes(*runner.step(config, batch), 5) == pytest.approx(
        [-1 / 8] * 2 + [-1 / 4] * 3, abs=1e-7
    )


def test_turns_of_weight_zero_have_no_gradient(runner: StepRunner):
    """A critical first turn of a dialogue without an outcome: G = (1, 0, 0)."""
    (group,) = one_group([(1, 2, False, 0.0)] * 3, critical=lambda turn, index: index == 0)
    batch = [
        dataclasses.replace(group, trajectories=(group.trajectories[0].replace(success=True),))
    ]
    assert slopes(*runner.step(multi_turn.epo_strategic(**SHAPE), batch), 6) == pytest.approx(
        [-1 / 6] * 2 + [0.0] * 4, abs=1e-7
    )


def test_the_scale_of_all_turn_rewards_changes_no_weight(runner: StepRunner):
    """Multiplying all rewards by c > 0 does not change the weights, which lie in [-1, 1]."""
    batch = marked(GROUPS)[0]
    count, advantages_by_scale = size(batch), []
    for c in (1.0, 7.0, 0.01):
        _, microbatches = runner.step(
            multi_turn.epo_strategic(
                rewards=CriticalTurnReward(0.1 * c, critical_reward=c), **SHAPE
            ),
            batch,
        )
        advantages_by_scale.append(advantages(microbatches, count))
    assert advantages_by_scale[1] == pytest.approx(
        advantages_by_scale[0], abs=1e-6
    ) and advantages_by_scale[2] == pytest.approx(advantages_by_scale[0], abs=1e-6)
    assert np.abs(advantages_by_scale[0]).max() == 1.0


# EPO, entropy-regularized


def both_steps(runner: StepRunner, term: Any) -> list[list[Any]]:
    """Losses and gradients of each of two steps; the first has no history."""
    config = multi_turn.epo(**SHAPE)
    algorithm, each = runner.steps(
        dataclasses.replace(config, regularizers={**config.regularizers, "entropy": term}),
        GROUPS,
        GROUPS,
    )
    return [losses_and_gradients(algorithm, microbatches) for microbatches in each]


def test_inside_the_band_there_is_only_the_entropy_bonus(runner: StepRunner):
    """H inside the band, or without history: loss and gradient of the base with its entropy
    bonus.
    """
    inside, bonus = (
        both_steps(runner, term)
        for term in (EntropyBand(0.5, low=0.0, high=1e9), EntropyBonus(0.5))
    )
    for a, b in zip(inside, bonus):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), a, b)


def test_outside_the_released_band_only_the_loss_changes(runner: StepRunner):
    """By c_ent c_s w alpha, and by c_ent c_s w without history; no gradient."""
    band = EntropyBand(
        0.5,
        smoothing=0.7,
        low=1e6,
        high=1e7,
        height=0.2,
        phase_weight=EPOPhaseWeight(),
        constant_penalty=True,
    )
    outside, bonus = (both_steps(runner, term) for term in (band, EntropyBonus(0.5)))
    for step, (a, b) in enumerate(zip(outside, bonus)):
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6),
            [result[1] for result in a],
            [result[1] for result in b],
        )
        difference = sum(float(result[0]) for result in a) - sum(float(result[0]) for result in b)
        assert difference == pytest.approx(
            0.5 * 0.7 * EPOPhaseWeight()(step) * (0.2 if step else 1.0), abs=1e-4
        )


# ScalingInter-RL


def test_an_episode_truncated_by_the_cap_keeps_its_reward(runner: StepRunner):
    """An episode truncated by a cap on turns has the credit and weights of any other episode."""
    cut = [
        dataclasses.replace(
            g, trajectories=tuple(t.replace(stop_reason="turns") for t in g.trajectories)
        )
        for g in GROUPS
    ]
    (_, ended), (_, capped) = (
        runner.step(multi_turn.scaling_inter(**SHAPE), batch) for batch in (GROUPS, cut)
    )
    assert len(ended) == len(capped) > 0
    assert all(
        trees_equal((a.advantage, a.batch.weight), (b.advantage, b.batch.weight))
        for a, b in zip(ended, capped)
    )


# G-RA


def worth(outcome: float, *steps: float) -> Trajectory:
    parts = [{"tools": step} for step in steps[:-1]] + [{"tools": steps[-1], "outcome": outcome}]
    return make_trajectory(
        *(
            dataclasses.replace(make_turn([make_call([1], [2])], sum(p.values())), rewards=p)
            for p in parts
        )
    )


def test_below_the_gate_step_rewards_change_nothing_and_the_total_grows_with_the_outcome(
    runner: StepRunner,
):
    """Outcomes up to the gate: no step reward counts; above it the total is monotone in the
    outcome.
    """
    config = multi_turn.gated_reward_accumulation(("outcome", "tools"), (0.5,), **SHAPE)
    steps: list[tuple[float, float]] = [(0.0, 0.0), (0.3, 0.4), (9.0, -5.0)]
    batches = [
        marked([Group("a", (worth(0.2, *rewards), worth(0.5, *rewards[::-1])))])[0]
        for rewards in steps
    ]
    advantages_of = [advantages(runner.step(config, batch)[1], 4).tolist() for batch in batches]
    assert advantages_of[0] == advantages_of[1] == advantages_of[2] and advantages_of[
        0
    ] == pytest.approx([-0.70711] * 2 + [0.70711] * 2, abs=1e-5)
    gate = RewardGate(("outcome", "tools"), (0.5,))
    totals = [
        gate(Group("a", (worth(x, 0.3, 0.4),)), 0).trajectories[0].total_reward
        for x in np.linspace(-2, 2, 41)
    ]
    assert all(a <= b for a, b in itertools.pairwise(totals)) and totals[-1] - totals[
        0
    ] == pytest.approx(4.7, abs=1e-9)


# SimpleTIR


def test_a_void_rollout_counts_in_its_group_and_is_not_trained(runner: StepRunner):
    """Returns 1 1 0 0: ±.866; with an additional void rollout of return 0: 1.0954 and -.7303, and
    no gradient for the void one.
    """

    def of(*rewards: float) -> list[Group]:
        (group,) = one_group(*earning(*rewards), void=lambda turn, index: False)
        (void,) = with_info(
            [dataclasses.replace(group, trajectories=group.trajectories[4:])],
            void=lambda turn, index: True,
        )
        return [
            dataclasses.replace(group, trajectories=(*group.trajectories[:4], *void.trajectories))
        ]

    algorithm, microbatches = runner.step(tool_use.simpletir(**SHAPE), of(1.0, 1.0, 0.0, 0.0, 0.0))
    assert advantages(microbatches, 5)[:4] == pytest.approx([1.09545] * 2 + [-0.7303] * 2, abs=1e-4)
    assert (
        weights(microbatches, 5).tolist() == [0.25] * 4 + [0.0]
        and slopes(algorithm, microbatches, 5)[4] == 0.0
    )
    _, without = runner.step(tool_use.simpletir(**SHAPE), of(1.0, 1.0, 0.0, 0.0))
    _, grpo = runner.step(ppo_base(PPO(0.2, 0.28, 3.0), **SHAPE), of(1.0, 1.0, 0.0, 0.0))
    assert advantages(without, 4) == pytest.approx([0.86602] * 2 + [-0.86602] * 2, abs=1e-4)
    assert len(without) == len(grpo) and all(trees_equal(a, b) for a, b in zip(without, grpo))


# IGPO


def test_equal_outcomes_are_distinguished_by_their_information_gain(runner: StepRunner):
    """Gains of .3 and .1 before the same outcome: z = ±.7071, and nothing at the last turn."""
    (group,) = one_group(*[[(1, 1, False, 0.0), (1, 1, False, 1.0)]] * 2)
    chances = ((0.1, 0.4), (0.1, 0.2))
    with_logp = [
        with_info(
            [dataclasses.replace(group, trajectories=(t,))],
            gold_logp=lambda turn, index, p=p: math.log(p[index]),
        )[0].trajectories[0]
        for t, p in zip(group.trajectories, chances)
    ]
    for gamma in (0.0, 1.0):
        config = without_regularizers(tool_use.igpo(gamma, joint_normalization=False, **SHAPE))
        _, microbatches = runner.step(
            config, [dataclasses.replace(group, trajectories=tuple(with_logp))]
        )
        assert advantages(microbatches, 4) == pytest.approx([0.7071, 0.0, -0.7071, 0.0], abs=1e-4)


# SCoRe


def test_the_first_stage_gives_the_first_attempt_no_reward_and_the_second_the_bonus(
    runner: StepRunner,
):
    """Attempts 0 -> 1 and 1 -> 0: A = (0, r2) with KL (.1 + .01, .01); then (r1, r2 + 10 (r2 - r1))
    with KL .01 on both.
    """
    batch = one_group(
        [(1, 1, False, 0.0), (1, 1, False, 1.0)], [(1, 1, False, 1.0), (1, 1, False, 0.0)]
    )
    _, (first, second) = runner.steps(multi_turn.self_correcting(1, **SHAPE), batch, batch)

    def kl_coefficients(microbatches: Sequence[Any]) -> np.ndarray:
        return by_token(
            microbatches, lambda microbatch: microbatch.regularizer_data["kl"].coefficient, 4
        )

    assert advantages(first, 4).tolist() == [0, 1, 0, 0] and advantages(second, 4).tolist() == [
        0,
        11,
        1,
        -10,
    ]
    assert kl_coefficients(first) == pytest.approx([0.11, 0.01, 0.11, 0.01]) and kl_coefficients(
        second
    ) == pytest.approx([0.01] * 4)


# ARPO


def test_hard_and_soft_attribution_have_the_same_gradient_at_ratio_one(runner: StepRunner):
    """Summed over the branches that share a token, with a sum over tokens; on shared tokens hard is
    the mean of soft.
    """
    root = make_call([1, 2], [3, 4], logp=[-1 / MARK, -2 / MARK])

    def member(first: Call, number: int, reward: float) -> Trajectory:
        last = make_call([1, 2, 3, 4, 9], [4 + number], logp=[-number / MARK])
        return make_trajectory(make_turn([first]), make_turn([last], reward)).replace(
            success=reward > 0
        )

    unshared = make_call([1, 2], [3, 4], logp=[-6 / MARK, -7 / MARK])
    batch = [Group("a", (member(root, 3, 1.0), member(root, 4, 0.0), member(unshared, 5, 5.0)))]
    soft, hard = (
        runner.step(
            tool_use.arpo(
                hard_attribution=hard_attribution,
                aggregation=TrajectorySum(1.0),
                rescore=True,
                epochs=1,
                **SHAPE,
            ),
            batch,
        )
        for hard_attribution in (False, True)
    )
    assert slopes(*hard, 7, gap=0.0) == pytest.approx(slopes(*soft, 7, gap=0.0), abs=1e-6)
    assert advantages(hard[1], 7) == pytest.approx(advantages(soft[1], 7), abs=1e-6)
    shared = np.unique(
        np.concatenate(
            [
                microbatch.advantage[np.isclose(microbatch.batch.sampler_logp, -1 / MARK)]
                for microbatch in hard[1]
            ]
        )
    )
    assert len(shared) == 1 and shared[0] == pytest.approx(
        (1.0 + 0.0 - 4.0) / 2 / 7**0.5, abs=1e-5
    )  # mean 2, std sqrt 7


# SPEAR


def test_self_imitation_with_coefficient_zero_is_the_base(runner: StepRunner):
    """c = 0: the base, bit for bit; c = 1 adds microbatches, none of whose advantages is
    below 0.
    """

    def of(*auxiliaries: SelfImitation) -> list[Any]:
        return runner.steps(
            tool_use.spear(12.0, reward_tool_use=False, auxiliaries=auxiliaries, **SHAPE),
            GROUPS,
            GROUPS,
        )[1][1]

    base, off, on = (
        of(),
        *(
            of(SelfImitation(c, PositiveReplay(size=2, require_tool_call=False)))
            for c in (0.0, 1.0)
        ),
    )
    assert (
        len(base) == len(off) > 0
        and all(trees_equal(a, b) for a, b in zip(base, off))
        and len(on) > len(base)
    )
    replayed = np.concatenate(
        [microbatch.advantage[microbatch.batch.action_mask] for microbatch in on[len(base) :]]
    )
    assert (replayed > 0).any() and (replayed >= 0).all()


# The Practitioner's Guide


def test_single_and_dense_rewards_agree_where_only_the_last_turn_has_a_reward(runner: StepRunner):
    """Single and dense placement agree, and leave-one-out gives ±1."""
    (group,) = one_group(
        [(1, 2, False, 0.0), (1, 1, False, 1.0)],
        [(1, 1, False, 0.0)] * 2,
        full_score=lambda turn, index: 1.0,
    )
    (_, dense), (_, single) = (
        runner.step(actor_critic.practitioners_rloo(has_dense_rewards, **SHAPE), [group])
        for has_dense_rewards in (True, False)
    )
    assert len(dense) == len(single) > 0 and all(trees_equal(a, b) for a, b in zip(dense, single))
    assert advantages(dense, 5).tolist() == [1.0] * 3 + [-1.0] * 2  # n / (n - 1) times ±.5


# BFS-Prover-V2


def test_only_steps_on_the_accepted_path_are_trained(runner: StepRunner):
    """Weight 1 on the path, 0 off it: -1 / N and exactly 0."""
    batch = one_group([(1, 2, False, 0.0)] * 3, weight=lambda turn, index: float(index != 1))
    gradients = slopes(*runner.step(multi_turn.bfs_prover(0.0, 1.0, **SHAPE), batch), 6)
    assert gradients == pytest.approx([-1 / 6] * 2 + [0.0] * 2 + [-1 / 6] * 2, abs=1e-7)


# VLA-RL


def test_an_action_of_seven_tokens_is_one_step(runner: StepRunner):
    """At ratio 1 each of its tokens has the gradient of the sum of their log-probs: -A over the
    number of steps.
    """
    batch = one_group([(1, 7, False, 0.0), (1, 7, False, 1.0)])
    algorithm, microbatches = runner.step(
        actor_critic.vla_rl(HEAD, warmup=0, rescore=True, **SHAPE), batch
    )
    credit = advantages(microbatches, 14)
    assert len(np.unique(credit)) == 2
    assert slopes(algorithm, microbatches, 14, gap=0.0) == pytest.approx(-credit / 2, abs=1e-6)


def test_during_the_warmup_the_policy_is_not_updated(runner: StepRunner):
    """During the warmup only the critic is updated."""
    algorithm, microbatches_by_step = runner.steps(
        actor_critic.vla_rl(HEAD, warmup=2, **SHAPE), GROUPS, GROUPS, GROUPS
    )
    assert isinstance(algorithm._critic_learner, RecordingLearner)
    assert [len(microbatches) > 0 for microbatches in microbatches_by_step] == [
        False,
        False,
        True,
    ] and len(algorithm._critic_learner.microbatches) == 3 * len(microbatches_by_step[2])


# Properties of all methods

WIDE = {**SHAPE, "bin_length": 64}
BY_SEQUENCE = {"gspo", "spear"}  # aggregated over training sequences


def from_the_start(name: str, **settings: Any) -> PolicyGradientConfig:
    """The method without a warmup of its critic."""
    config = METHODS[name](**settings)
    return (
        dataclasses.replace(config, critic=dataclasses.replace(config.critic, warmup_steps=0))
        if config.critic
        else config
    )


def score_by_token(self: RecordingLearner, params: Any, batch: Any) -> tuple[Any, ...]:
    """The rule of `RecordingLearner` without the position of the token."""
    rule = np.sin(1.7 * np.asarray(batch.tokens)).astype(np.float32)
    return tuple(jnp.asarray(x) for x in (0.1 * rule - 2.0, 2.0 + rule)[: self._num_outputs])


def with_longer_prompts(batch: Sequence[Group], more: int) -> list[Group]:
    """The groups with `more` additional tokens before the new part of each prompt."""

    def longer(trajectory: Trajectory) -> Trajectory:
        turns, old_ids, new_ids = [], np.zeros(0, np.int32), np.zeros(0, np.int32)
        for turn in trajectory.turns:
            (call,) = turn.calls
            longer_call = dataclasses.replace(
                call,
                prompt=np.concatenate(
                    [new_ids, np.full(more, 5, np.int32), call.prompt[len(old_ids) :]]
                ),
            )
            turns.append(dataclasses.replace(turn, calls=(longer_call,)))
            old_ids, new_ids = call.ids, longer_call.ids
        return trajectory.replace(turns=tuple(turns))

    return [
        dataclasses.replace(group, trajectories=tuple(map(longer, group.trajectories)))
        for group in batch
    ]


@pytest.mark.parametrize("name", DISTINCT_METHODS)
def test_neither_observations_nor_training_sequences_change_a_tokens_credit(
    name: str, runner: StepRunner
):
    """More observation tokens change no advantage and no weight; one training sequence per turn
    changes no statistic.
    """
    runner.monkeypatch.setattr(RecordingLearner, "score", score_by_token)
    (batch,) = marked(GROUPS)
    count, config = size(batch), from_the_start(name, **{**WIDE, "epochs": 1})
    plain, more = (
        runner.step(config, groups)[1] for groups in (batch, with_longer_prompts(batch, 3))
    )
    runner.monkeypatch.setattr(Call, "extends", lambda self, other: False)
    assert len(collate(batch).sequences) > 24
    split = runner.step(config, batch)[1]
    credit = trained(plain, count)
    assert credit.any()
    for other in (more, split):
        assert trained(other, count) == pytest.approx(credit, abs=1e-6)
        if other is more or name not in BY_SEQUENCE:
            has_credit = credit != 0
            assert weights(other, count)[has_credit] == pytest.approx(
                weights(plain, count)[has_credit], abs=1e-8
            )


def later_turns(inputs: CreditInputs) -> np.ndarray:
    return turn_index(inputs)[inputs.token_turn] > 0


@pytest.mark.parametrize(  # one for each aggregation, and a critic
    "name", ["dapo", "gspo", "turn ppo", "vla-rl", "dart", "score", "spear", "mars"]
)
def test_a_masked_token_has_no_weight_and_still_counts_in_statistics(name: str, runner: StepRunner):
    """A token without weight has exactly no gradient; the others' advantages are unchanged."""
    (batch,) = marked(GROUPS)
    count, config = size(batch), from_the_start(name, **{**SHAPE, "epochs": 1})
    plain, masked = (
        runner.step(dataclasses.replace(config, mask=mask), batch)[1]
        for mask in (None, later_turns)
    )
    indices, remaining = collate(batch).token_index, weights(masked, count)
    later = turn_index(indices)[indices.token_turn] > 0
    assert remaining.any() and not remaining[~later].any()
    has_weight = remaining != 0
    assert advantages(masked, count)[has_weight] == pytest.approx(
        advantages(plain, count)[has_weight], abs=1e-7
    )


@pytest.mark.parametrize("name", ["dapo", "gspo", "dart", "vapo", "spear", "epo"])
def test_with_rewritten_contexts_the_first_ratio_is_one(name: str, runner: StepRunner):
    """With one training sequence per turn, the proximal log-probs are the learner's of those same
    sequences.
    """
    runner.monkeypatch.setattr(Call, "extends", lambda self, other: False)
    algorithm, microbatches = runner.step(
        from_the_start(name, **{**SHAPE, "rescore": True}), GROUPS
    )
    assert microbatches
    for microbatch in microbatches:
        mask = microbatch.batch.action_mask
        assert np.array_equal(
            np.asarray(algorithm._learner.score(None, microbatch.batch)[0])[mask],
            microbatch.proximal_logp[mask],
        )


@pytest.mark.parametrize(
    "name", ["dapo", "gspo", "cispo", "aepo", "dart", "score", "spear", "ppo", "igpo"]
)
def test_at_ratio_one_a_methods_gradient_is_that_of_its_advantages(name: str, runner: StepRunner):
    """With any surrogate, the first gradient in a log-prob is -weight times A."""
    config = without_regularizers(METHODS[name](**{**SHAPE, "rescore": True, "epochs": 1}))
    algorithm, microbatches = runner.step(config, GROUPS)
    assert microbatches
    for microbatch, (_, (slope, _)) in zip(
        microbatches, losses_and_gradients(algorithm, microbatches, gap=0.0)
    ):
        np.testing.assert_allclose(
            slope, -microbatch.batch.weight * microbatch.advantage, atol=1e-7, rtol=1e-5
        )


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_config_is_read_back_unchanged(name: str):
    """The config of every method, through JSON."""
    data = to_json(METHODS[name](**SHAPE))
    again = from_json(json.loads(json.dumps(data)))
    assert isinstance(again, PolicyGradientConfig) and to_json(again) == data
