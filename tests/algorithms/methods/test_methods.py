"""Every published method takes steps, and with its distinguishing setting at the neutral value it
equals its base, bit for bit.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from support.method_runs import (
    DISTINCT_METHODS,
    GROUPS,
    HEAD,
    METHODS,
    PARAMS,
    SHAPE,
    losses_and_gradients,
    ppo_base,
    random_experience,
    recorded_run,
    train,
    trees_equal,
    without_regularizers,
)

from agentrl_jax.algorithms.advantages.gae import GAE
from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.grouping import group_of_turn, turn_of_token
from agentrl_jax.algorithms.advantages.token_weights import step_mean, turn_mean
from agentrl_jax.algorithms.advantages.turn import RewardToGo, TurnGroupedBy, episode_return
from agentrl_jax.algorithms.experience.rewards import OutcomeReward
from agentrl_jax.algorithms.losses.entropy_band import EntropyBand
from agentrl_jax.algorithms.losses.importance import TruncatedIS
from agentrl_jax.algorithms.losses.policy import REINFORCE, SurrogateLoss
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import KL, EntropyBonus
from agentrl_jax.algorithms.methods import (
    actor_critic,
    group_relative,
    grpo,
    gui,
    multi_turn,
    tool_use,
)
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import InlinePool

# Methods with a critic, with weights without a baseline, or with turns that differ from each other.
SIGNAL_WITHOUT_DIFFERENCE = {
    "igpo",
    "mars",
    "ppo",
    "turn ppo",
    "bi-level ppo",
    "vapo",
    "ui-tars-2",
    "vla-rl",
    "ufo",
    "guide, ppo",
    "score",
    "epo, strategic",
    "bfs-prover",
    "online filtered",
    "ppo, lmrl",
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InlinePool()) as runtime:
        yield runtime


COMPILED = (  # each compiles a different program: policy losses, regularizers, critics
    "gspo",
    "cispo",
    "vapo",
    "vla-rl",
    "ufo",
    "guide, ppo",
    "dart",
    "arpo",
    "aepo",
    "spear",
    "igpo",
    "score",
    "epo",
    "simpletir",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_a_method_learns_from_differences_and_stays_finite(name: str, runtime: Runtime):
    params, metrics = train(METHODS[name](**SHAPE), runtime, [GROUPS, random_experience(4)])
    assert not trees_equal(params, PARAMS) and all(
        np.isfinite(x).all() for x in jax.tree.leaves(params)
    )
    assert metrics[-1]["skipped"] == 0 and metrics[-1]["tokens/identity"] == 1.0
    for step_metrics in metrics:
        assert all(np.isfinite(x) for x in step_metrics.values() if isinstance(x, float))


@pytest.mark.parametrize(
    "name", [name for name in DISTINCT_METHODS if name not in SIGNAL_WITHOUT_DIFFERENCE]
)
def test_equal_trajectories_give_no_gradient(
    name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    # The same tokens too, so that lengths and entropies are equal.
    equal_groups = [
        dataclasses.replace(group, trajectories=(group.trajectories[0],) * len(group.trajectories))
        for group in random_experience(5, uniform=True)
    ]
    config = without_regularizers(METHODS[name](**SHAPE))
    _, microbatches, metrics = recorded_run(config, [equal_groups], runtime, monkeypatch)
    assert microbatches == [] and metrics[0]["skipped"] == config.epochs * config.minibatches


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_a_step_and_skips_empty_batches(
    name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    config = METHODS[name](**SHAPE)
    _, microbatches, metrics = recorded_run(
        config, [[], [Group("lost", (), num_dropped=4)], GROUPS], runtime, monkeypatch
    )
    updates = config.epochs * config.minibatches
    assert [m["skipped"] for m in metrics[:2]] == [updates] * 2 and microbatches


def plain_ppo(**settings: Any) -> PolicyGradientConfig:
    return actor_critic.ppo(HEAD, **settings)


CLIP_HIGHER = PPO(0.2, 0.28)
NEUTRAL: dict[
    str, tuple[Callable[..., PolicyGradientConfig], Callable[..., PolicyGradientConfig]]
] = {
    "dapo without its filter": (
        lambda **s: group_relative.dapo(filter=None, **s),
        lambda **s: ppo_base(CLIP_HIGHER, **s),
    ),
    "gigpo without its step": (
        lambda **s: group_relative.gigpo(weight=0.0, **s),
        lambda **s: ppo_base(**s, advantage=group_relative.group_centered),
    ),
    "vapo: lambda 1, no warm-up, no likelihood": (
        lambda **s: actor_critic.vapo(HEAD, alpha=1e12, warmup=0, regularizers={}, **s),
        lambda **s: actor_critic.ppo(
            HEAD, advantage=GAE(lam=1.0 - 1e-12, critic_lam=1.0), surrogate=CLIP_HIGHER, **s
        ),
    ),
    "ufo: no decay, no repetition, all groups": (
        lambda **s: actor_critic.ufo(
            HEAD,
            decay=1.0,
            repetition=0.0,
            group_fraction=1.0,
            **{**s, "regularizers": {}, "rewards": OutcomeReward()},
        ),
        lambda **s: actor_critic.ppo(HEAD, surrogate=CLIP_HIGHER, rewards=OutcomeReward(), **s),
    ),
    "arpo (gui) without replay": (
        lambda **s: gui.arpo_gui(replay=False, format_penalty=0.0, **s),
        lambda **s: ppo_base(PPO(0.2, 0.3, 3.0), rescore=True, **s),
    ),
    "arpo without branches, hard": (
        lambda **s: tool_use.arpo(hard_attribution=True, **s),
        lambda **s: tool_use.arpo(**s),
    ),
    "aepo without its pieces": (
        lambda **s: tool_use.aepo(entropy_scale=0.0, keep_gradient=False, **s),
        lambda **s: dataclasses.replace(
            tool_use.arpo(**s), surrogate=PPO(dual_clip=3.0), rescore=True
        ),
    ),
    "simpletir without void turns": (
        tool_use.simpletir,
        lambda **s: tool_use.simpletir(drop_void_turns=False, **s),
    ),
    "spear without replay": (
        lambda **s: tool_use.spear(12.0, reward_tool_use=False, auxiliaries=(), **s),
        lambda **s: dataclasses.replace(
            tool_use.spear(12.0, reward_tool_use=False, replay_size=10**6, **s)
        ),
    ),
    "supo with one context, none overlong": (tool_use.supo, lambda **s: ppo_base(CLIP_HIGHER, **s)),
    "inspo with one instruction": (tool_use.inspo, ppo_base),
    "score: alpha 0, one coefficient, one stage": (
        lambda **s: multi_turn.self_correcting(0, alpha=0.0, beta1=0.1, beta2=0.1, gamma=1.0, **s),
        lambda **s: PolicyGradientConfig(
            TurnGroupedBy(RewardToGo(1.0), key=None),
            turn_mean,
            REINFORCE(),
            regularizers={"kl": KL(0.1)},
            **s,
        ),
    ),
    "epo without its band": (
        lambda **s: multi_turn.epo(EntropyBand(smoothing=0.0), 0.0, **s),
        lambda **s: ppo_base(
            regularizers={"entropy": EntropyBonus(1e-3), "kl": KL(0.01)}, rescore=True, **s
        ),
    ),
    "g-ra with open gates": (
        lambda **s: multi_turn.gated_reward_accumulation(("outcome",), (), **s),
        ppo_base,
    ),
    "mind where each turn holds one unit": (
        lambda **s: multi_turn.mind(1.0, ("Wait",), 0.0, **s),
        ppo_base,
    ),
    "bfs-prover with all steps": (
        lambda **s: multi_turn.bfs_prover(0.0, 1.0, **s),
        lambda **s: dataclasses.replace(multi_turn.bfs_prover(0.2, 0.8, **s), mask=None),
    ),
    "dart: all steps, no truncation, no curation": (
        lambda **s: gui.dart(
            entropy_fraction=1.0,
            max_importance_weight=float("inf"),
            sequence_ratio=False,
            pre_filter=None,
            replay=None,
            filter=None,
            **s,
        ),
        lambda **s: PolicyGradientConfig(
            TurnGroupedBy(episode_return, group_of_turn, std=True, keep_singletons=True),
            step_mean,
            PPO(0.1, 0.28, 10.0),
            sequence=turn_of_token,
            rescore=True,
            mismatch=TruncatedIS(high=float("inf")),
            regularizers={"kl": KL(0.1)},
            **s,
        ),
    ),
    "scaling-inter without its curriculum": (
        multi_turn.scaling_inter,
        lambda **s: ppo_base(regularizers={"kl": KL(1e-3)}, epochs=2, **s),
    ),
    "critic warm-up of no steps": (
        lambda **s: plain_ppo(critic=CriticConfig(HEAD, warmup_steps=0), **s),
        plain_ppo,
    ),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_neutral_setting_gives_the_base_to_the_bit(
    name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    method, base = NEUTRAL[name]
    ours, theirs = (
        recorded_run(make(**SHAPE), [GROUPS, GROUPS], runtime, monkeypatch)
        for make in (method, base)
    )
    assert len(ours[1]) == len(theirs[1]) > 0
    for a, b in zip(ours[1], theirs[1]):
        for field in ("batch", "sequence_ids", "advantage", "nll_weight", "proximal_logp"):
            assert trees_equal(getattr(a, field), getattr(b, field)), field
    assert trees_equal(
        losses_and_gradients(ours[0], ours[1]), losses_and_gradients(theirs[0], theirs[1])
    )


@pytest.mark.parametrize("name", DISTINCT_METHODS)
def test_the_order_of_members_and_groups_changes_nothing(
    name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    shuffled = [
        dataclasses.replace(group, trajectories=group.trajectories[::-1]) for group in GROUPS[::-1]
    ]
    ours, theirs = (
        recorded_run(METHODS[name](**SHAPE), [GROUPS, batch], runtime, monkeypatch)[1]
        for batch in (GROUPS, shuffled)
    )

    def token_table(microbatches: list) -> np.ndarray:
        """A sorted row for each token with a loss, independent of packing."""
        tables = []
        for microbatch in microbatches:
            batch = microbatch.batch
            columns = (batch.tokens, batch.sampler_logp, microbatch.advantage, batch.weight)
            tables.append(np.stack([column[batch.action_mask] for column in columns], -1))
        lines = np.concatenate(tables).astype(np.float64)
        lines = lines[(lines[:, 3] != 0) & (lines[:, 2] != 0)]
        return lines[np.lexsort(lines.round(5).T)]

    np.testing.assert_allclose(token_table(ours), token_table(theirs), atol=1e-5, rtol=0)


def test_grpo_is_an_advantage_an_aggregation_and_a_surrogate():
    assert dataclasses.asdict(grpo()) == dataclasses.asdict(
        PolicyGradientConfig(group_normalized, grpo().aggregation, PPO())
    )


@dataclasses.dataclass
class BatchLoss(SurrogateLoss):
    """A mean in place of a loss per token."""

    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        return jnp.mean(logp)


def test_a_loss_that_is_not_per_token_is_refused(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    run = recorded_run(
        group_relative.grpo(surrogate=BatchLoss(), **SHAPE), [GROUPS], runtime, monkeypatch
    )
    with pytest.raises(UserError, match="BatchLoss must return a loss for each token"):
        losses_and_gradients(*run[:2])
