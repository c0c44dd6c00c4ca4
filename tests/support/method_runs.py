"""Every published method on a small policy, and runs of whole steps that record the learner's
inputs.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.fixtures import (
    MeanEmbeddingPolicy,
    device_mesh,
    random_groups,
    with_info,
    with_sampler_logp,
)

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.losses.policy import SurrogateLoss
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.methods import (
    actor_critic,
    code_use,
    group_relative,
    gui,
    lmrl_gym,
    multi_turn,
    searching,
    tool_use,
    vision,
)
from agentrl_jax.algorithms.policy_gradient import algorithm as policy_gradient
from agentrl_jax.algorithms.policy_gradient import critic as token_critic
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.learner.data_shards import make_data_shard
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.packing import Batch
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group

POLICY = MeanEmbeddingPolicy()
PARAMS = POLICY.init(jax.random.key(0))
ADAM = AdamWConfig(learning_rate=0.03, eps=1e-3)
HEAD = HeadConfig(layers=0, scale=0.1)
SHAPE: dict[str, Any] = {"optimizer": ADAM, "bin_length": 24, "microbatch": 4}


def random_experience(seed: int, uniform: bool = False) -> list[Group]:
    """Six groups of four episodes of two or three turns, solved or not, with all info fields that
    the methods' pieces read.
    """
    rng = np.random.default_rng(seed)

    def turns() -> list[tuple[int, int, bool, float]]:
        return [(2, int(rng.integers(1, 4)), False, 0.0) for _ in range(rng.integers(2, 4))]

    groups = random_groups([[turns() for _ in range(4)] for _ in range(6)], seed=seed)
    info_fields: dict[str, Callable[[Any, int], Any]] = {
        "formatted": lambda turn, index: bool(rng.random() < 0.9),
        "legal": lambda turn, index: bool(rng.random() < 0.9),
        "answer": lambda turn, index: int(rng.integers(3)),
        "void": lambda turn, index: False,
        "weight": lambda turn, index: 1.0,
        "gold_logp": lambda turn, index: -float(rng.random()),
        "match": lambda turn, index: ("exact", "type", "parsed")[rng.integers(3)],
        "critical": lambda turn, index: bool(rng.random() < 0.5),
        "distance": lambda turn, index: 3.0 * float(rng.random()),
        "stopped": lambda turn, index: True,
        "full_score": lambda turn, index: 1.0,
        "called_tools": lambda turn, index: ["find"],
        "anchor": lambda turn, index: index,
    }
    if uniform:
        info_fields |= {
            "formatted": lambda turn, index: True,
            "legal": lambda turn, index: True,
            "answer": lambda turn, index: 0,
            "match": lambda turn, index: "exact",
            "critical": lambda turn, index: False,
            "distance": lambda turn, index: 1.5,
            "gold_logp": lambda turn, index: -1.0,
        }

    def with_outcomes(i: int, group: Group) -> Group:
        members = []
        for j, trajectory in enumerate(group.trajectories):
            solved = True if uniform else (j + i) % 4 < 1 + i % 2
            *first, last = trajectory.turns
            last = dataclasses.replace(
                last, reward=float(solved), rewards={"outcome": float(solved)}
            )
            members.append(
                trajectory.replace(
                    turns=(*first, last), success=solved, task=group.task, agent="strategist"
                )
            )
        return dataclasses.replace(group, trajectories=tuple(members))

    return with_sampler_logp(
        POLICY,
        PARAMS,
        [with_outcomes(i, group) for i, group in enumerate(with_info(groups, **info_fields))],
        noise_scale=0.1,
    )


GROUPS = random_experience(3)
METHODS: dict[str, Callable[..., PolicyGradientConfig]] = {
    "dapo": lambda **s: group_relative.dapo(12, 4, **s),
    "gspo": group_relative.gspo,
    "cispo": group_relative.cispo,
    "rloo": group_relative.rloo,
    "reinforce++": group_relative.reinforce_plus_plus,
    "reinforce++ baseline": group_relative.reinforce_plus_plus_with_baseline,
    "gigpo": group_relative.gigpo,
    "ppo": lambda **s: actor_critic.ppo(HEAD, **s),
    "turn ppo": lambda **s: actor_critic.turn_ppo(HEAD, **s),
    "bi-level ppo": lambda **s: actor_critic.bi_level_ppo(HEAD, **s),
    "vapo": lambda **s: actor_critic.vapo(HEAD, warmup=1, **s),
    "ui-tars-2": lambda **s: actor_critic.ui_tars_2(HEAD, warmup=1, **s),
    "vla-rl": lambda **s: actor_critic.vla_rl(HEAD, warmup=1, **s),
    "ufo": lambda **s: actor_critic.ufo(HEAD, **s),
    "guide, ppo": lambda **s: actor_critic.practitioners_ppo(HEAD, **s),
    "guide, rloo": actor_critic.practitioners_rloo,
    "dart": gui.dart,
    "arpo, gui": gui.arpo_gui,
    "active-vln": gui.active_vln,
    "ui-s1": gui.ui_s1,
    "ui-s1, released": lambda **s: gui.ui_s1(as_released=True, **s),
    "simpletir": tool_use.simpletir,
    "arpo": lambda **s: tool_use.arpo(hard_attribution=True, **s),
    "aepo": tool_use.aepo,
    "spear": lambda **s: tool_use.spear(12.0, replay_size=2, **s),
    "igpo": tool_use.igpo,
    "supo": tool_use.supo,
    "webagent-r1": tool_use.webagent_r1,
    "inspo": tool_use.inspo,
    "mgpo": vision.mgpo,
    "vigorl": vision.vigorl,
    "codevision": lambda **s: vision.codevision(0.5, **s),
    "framethinker": vision.framethinker,
    "vrag-rl": lambda **s: vision.vrag_rl(rewards=None, **s),
    "meta-spatial": lambda **s: vision.meta_spatial(False, **s),
    "retool": code_use.retool,
    "artist": code_use.artist,
    "mars-sql": code_use.mars_sql,
    "datamind": lambda **s: code_use.datamind(by_uncertainty=True, **s),
    "r1-ci": code_use.r1_code_interpreter,
    "search-r1": searching.search_r1,
    "search planner": lambda **s: searching.ai_search_planner(HEAD, 0.1, 0.1, rewards=None, **s),
    "chain-of-agents": searching.chain_of_agents,
    "search self-play": searching.search_self_play,
    "score": lambda **s: multi_turn.self_correcting(1, **s),
    "mind": lambda **s: multi_turn.mind(0.1, ("Wait",), 0.1, **s),
    "epo, strategic": multi_turn.epo_strategic,
    "epo": multi_turn.epo,
    "scaling-inter": multi_turn.scaling_inter,
    "g-ra": lambda **s: multi_turn.gated_reward_accumulation(("outcome",), (), **s),
    "mars": multi_turn.mars,
    "bfs-prover": lambda **s: multi_turn.bfs_prover(0.1, 0.9, **s),
    "online filtered": lmrl_gym.online_filtered_cloning,
    "ppo, lmrl": lambda **s: lmrl_gym.ppo_with_imitation(HEAD, **s),
}
# One method each for those that differ only in rewards, constants or the device loss.
DISTINCT_METHODS = (
    "dapo",
    "gspo",
    "reinforce++",
    "gigpo",
    "turn ppo",
    "bi-level ppo",
    "vapo",
    "ufo",
    "dart",
    "arpo, gui",
    "ui-s1",
    "simpletir",
    "arpo",
    "spear",
    "igpo",
    "webagent-r1",
    "score",
    "epo, strategic",
    "mars",
    "bfs-prover",
    "ppo, lmrl",
)


def train(
    config: PolicyGradientConfig, runtime: Runtime, batches: Sequence[Sequence[Group]]
) -> tuple[Any, list[dict[str, Any]]]:
    algorithm = config.build(POLICY, device_mesh(), steps=100)
    state, metrics = algorithm.init(jax.random.key(0), PARAMS), []
    for batch in batches:
        state, step_metrics = algorithm.step(state, batch, runtime)
        metrics.append(step_metrics)
    return jax.device_get(state.params), metrics


class RecordingLearner(Learner):
    """Replaces `Learner`: records its microbatches, scores tokens by a fixed rule, and compiles
    nothing.
    """

    def __init__(self, model: Any, tx: Any, loss: Any, mesh: Any, forward: Any = None) -> None:
        self.data_shard, self.loss, self.microbatches = make_data_shard(mesh), loss, []
        self._num_outputs = 1 if forward else 2

    def init(self, key: Any, params: Any) -> TrainState:
        return TrainState(step=jnp.int32(0), params=params, opt_state=(), key=key)

    def update(
        self, state: TrainState, microbatches: Sequence[Any], proceed: Any = None
    ) -> tuple[TrainState, dict[str, Any]]:
        self.microbatches += microbatches
        tokens = sum(int(np.sum(x.batch.action_mask)) for x in microbatches)
        metrics = {"gradient_norm": jnp.float32(1.0), "tokens": jnp.float32(tokens)}
        return dataclasses.replace(state, step=state.step + 1), metrics

    def score(self, params: Any, batch: Batch) -> tuple[Any, ...]:
        rule = np.sin(1.7 * np.asarray(batch.tokens) + 0.3 * np.asarray(batch.positions)).astype(
            np.float32
        )
        return tuple(jnp.asarray(x) for x in (0.1 * rule - 2.0, 2.0 + rule)[: self._num_outputs])


def recorded_run(
    config: PolicyGradientConfig,
    batches: Sequence[Sequence[Group]],
    runtime: Runtime,
    monkeypatch: Any,
) -> tuple[Any, list, list]:
    """The algorithm, the microbatches of its policy updates, and the steps' metrics."""
    for module in (policy_gradient, token_critic):
        monkeypatch.setattr(module, "Learner", RecordingLearner)
    algorithm = config.build(POLICY, device_mesh(), steps=100)
    state, metrics = algorithm.init(jax.random.key(0), PARAMS), []
    for batch in batches:
        state, step_metrics = algorithm.step(state, batch, runtime)
        metrics.append(step_metrics)
    learner = algorithm._learner
    assert isinstance(learner, RecordingLearner)
    return algorithm, learner.microbatches, metrics


def losses_and_gradients(algorithm: Any, batches: Sequence[Any], gap: float = 0.3) -> list[Any]:
    """Each microbatch's weighted loss and its gradients in random log-probs (about `gap` from the
    proximal ones) and entropies.
    """
    rng = np.random.default_rng(0)
    results = []
    for batch in jax.tree.map(jnp.asarray, list(batches)):
        mask = batch.batch.action_mask
        noise = jnp.asarray(rng.normal(0, gap, mask.shape), jnp.float32)
        logp = jnp.where(mask, batch.proximal_logp + noise, 0.0)
        entropy = jnp.asarray(rng.random(mask.shape), jnp.float32)

        def total(logp: Any, entropy: Any, batch: Any = batch, mask: Any = mask) -> Any:
            loss = algorithm._learner.loss(logp, entropy, batch)[0]
            return jnp.sum(jnp.where(mask, batch.batch.weight * loss, 0.0))

        results.append(jax.value_and_grad(total, argnums=(0, 1))(logp, entropy))
    return results


def trees_equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


def without_regularizers(config: PolicyGradientConfig) -> PolicyGradientConfig:
    """The method without KL and entropy terms, whose gradients do not need any reward."""
    return dataclasses.replace(config, regularizers={})


def ppo_base(surrogate: SurrogateLoss | None = None, **settings: Any) -> PolicyGradientConfig:
    """PPO's loss of group-normalized advantages, token mean."""
    base = PolicyGradientConfig(group_normalized, token_mean, surrogate or PPO())
    return dataclasses.replace(base, **settings)
