"""Rollouts of a small environment under each kind of limit, and every published method at the size
to train on them.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import numpy as np
from support.credit_tables import TabularCritic, WeightlessEncoder
from support.fixtures import MeanEmbeddingPolicy, device_mesh
from support.strategy_runs import AGENT, TOKENIZER, KeyedTextEngine

from agentrl_jax.algorithms.archer.algorithm import ArcherConfig
from agentrl_jax.algorithms.methods import (
    actor_critic,
    code_use,
    expert_iteration,
    group_relative,
    gui,
    hierarchical,
    lmrl_gym,
    multi_turn,
    pairwise,
    searching,
    tool_use,
    ui_tars2,
    vision,
)
from agentrl_jax.algorithms.strategies.paired_rollouts import PairedRollouts
from agentrl_jax.environment import Environment
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.messages import user
from agentrl_jax.models.heads import CriticEnsemble, HeadConfig
from agentrl_jax.models.value_guided import ValueGuidedPolicy
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.episode_counts import conserved_episodes
from agentrl_jax.rollout.episode_records import distinct_episodes, recorded_calls, recorded_ends
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling
from agentrl_jax.workers.pool import InlinePool, Task

TURNS = 3
RECORD_CHECKS = (recorded_calls, recorded_ends, distinct_episodes)


class EveryFieldEnvironment(Environment):
    """Three turns, solved by an answer "a"; its info has every field that a method
    reads.
    """

    def _reset(self, options: dict[str, Any]) -> Any:
        self.turn = self.num_right = 0
        return (user("go\n"),), {}

    def _step(self, text: str) -> Any:
        self.turn, self.num_right = self.turn + 1, self.num_right + (text == "a")
        is_over, is_solved = self.turn == TURNS, self.num_right >= 1
        outcome, draw = float(is_over and is_solved), self.np_random.random
        info = {
            "rewards": {"outcome": outcome},
            "formatted": draw() < 0.9,
            "legal": draw() < 0.9,
            "answer": int(3 * draw()),
            "void": False,
            "weight": 1.0,
            "gold_logp": -draw(),
            "match": ("exact", "type", "parsed")[int(3 * draw())],
            "critical": draw() < 0.5,
            "distance": 3 * draw(),
            "stopped": is_over,
            "full_score": 1.0,
            "called_tools": ["find"],
            "anchor": self.turn,
            **({"success": is_solved} if is_over else {}),
        }
        return (user(f"{self.turn}\n"),), outcome, is_over, False, info


if "tests/EveryField-v0" not in gymnasium.registry:
    gymnasium.register("tests/EveryField-v0", "support.limited_runs:EveryFieldEnvironment")

# The opening has 3 tokens, each action and each observation 2: prompts have 3, 7 and 11.
# kind -> (limits, the turns of an episode)
LIMITS: dict[str, tuple[Limits, int]] = {
    "none": (Limits(), TURNS),
    "turns": (Limits(turns=2), 2),
    "calls": (Limits(calls=1), 1),
    "tokens": (Limits(tokens=3), 2),  # the second action is cut, too
    "context": (Limits(context=8), 2),
    "opening": (Limits(context=3), 0),  # there is no room for any action
}


class BudgetedEngine(KeyedTextEngine):
    """Writes "a", "b" or "c", as much of it as the budget allows."""

    def __init__(self) -> None:
        super().__init__(("a", "b", "c"))

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        call = super().submit(ids, sampling, key, parent, images).result()
        length = min(len(call.action), sampling.budget)
        arrays = ("action", "sampler_logp", "version", "alternatives", "alternative_logp")
        future: Future[Call] = Future()
        future.set_result(
            dataclasses.replace(
                call,
                finish_reason="stop" if length == len(call.action) else "budget",
                **{name: getattr(call, name)[:length] for name in arrays},
            )
        )
        return future


def limited_runtime(limits: Limits) -> Runtime:
    agent = dataclasses.replace(AGENT, limits=limits)
    return Runtime({"policy": BudgetedEngine()}, {"policy": agent}, InlinePool())


@functools.cache
def limited_groups(kind: str, pairs: bool) -> list[Group]:
    """Four groups under a kind of limit: of four episodes, or of pairs with a common prefix."""
    strategy: Strategy = PairedRollouts() if pairs else IndependentEpisodes(4)
    tasks = [Task("support.limited_runs:tests/EveryField-v0", seed) for seed in range(4)]
    with limited_runtime(LIMITS[kind][0]) as runtime:
        groups = runtime.collect(strategy, tasks, (3, len(kind)))
        assert all(check(groups).holds for check in RECORD_CHECKS)
        assert conserved_episodes(runtime.episode_counts.totals, groups).holds
        return groups


@dataclass(frozen=True)
class MethodRun:
    """A method's algorithm, and what it trains on."""

    config: AlgorithmConfig
    policy: Any
    pairs: bool = False

    def train(self, kinds: Sequence[str], steps: int = 2) -> tuple[Any, list[dict[str, Any]]]:
        """Parameters and metrics after steps on the groups of these kinds of limits, in which all
        invariants of batches hold.
        """
        groups = [group for kind in kinds for group in limited_groups(kind, self.pairs)]
        algorithm = self.config.build(self.policy, device_mesh(), steps)
        with limited_runtime(LIMITS[kinds[-1]][0]) as runtime:
            state = algorithm.init(jax.random.key(0), self.policy.init(jax.random.key(1)))
            algorithm.begin_phase(state, runtime)
            runtime.invariants.enabled, metrics = True, []
            for _ in range(steps):
                state, step_metrics = algorithm.step(state, groups, runtime)
                metrics.append(step_metrics)
            assert runtime.invariants.take_violations() == []
        return jax.device_get(state.params), metrics


POLICY = MeanEmbeddingPolicy(len(TOKENIZER))
HEAD = HeadConfig(layers=0, scale=0.1)
SHAPE: dict[str, Any] = {
    "optimizer": AdamWConfig(learning_rate=0.03, eps=1e-3),
    "bin_length": 16,
    "microbatch": 8,
}


def policy_gradient(method: Callable[..., AlgorithmConfig], *values: Any, **fields: Any) -> Any:
    return lambda: MethodRun(method(*values, **SHAPE, **fields), POLICY)


def pairwise_method(method: Callable[..., AlgorithmConfig], *values: Any, **fields: Any) -> Any:
    shape = {**SHAPE, "bin_length": 32, **fields}
    return lambda: MethodRun(method(*values, **shape), POLICY, pairs=True)


def token_values(method: Callable[..., AlgorithmConfig]) -> Any:
    head = HeadConfig(layers=0)
    q_heads = CriticEnsemble(head.build(POLICY.width, POLICY.vocab_size), 2)
    policy = ValueGuidedPolicy(POLICY, q_heads, head.build(POLICY.width), 1.0)
    return lambda: MethodRun(method(**SHAPE), policy)


def utterance_critic(method: Callable[..., ArcherConfig], *actor: Any, **fields: Any) -> Any:
    critic = hierarchical.utterance_critic(
        TabularCritic(),
        WeightlessEncoder(),
        state_lengths=(16,),
        utterance_lengths=(4,),
        batch=8,
        microbatch=8,
        optimizer=SHAPE["optimizer"],
    )
    settings = {"critic_steps": 1, "batch": 8, "warmup": 0, **fields}
    return lambda: MethodRun(method(critic, *actor, **settings), POLICY)


ACTOR = hierarchical.reinforce_actor(**SHAPE)
LIKELIHOOD = ui_tars2.maximum_likelihood(**SHAPE)
RUNS: dict[str, Callable[[], MethodRun]] = {
    "ExpertIterationConfig": lambda: MethodRun(
        expert_iteration.ExpertIterationConfig(multi_turn.bfs_prover(0.0, 1.0, **SHAPE), batch=8),
        POLICY,
    ),
    "FlywheelConfig": lambda: MethodRun(
        ui_tars2.FlywheelConfig(
            actor_critic.ui_tars_2(HEAD, warmup=1, **SHAPE),
            every=1,
            num_updates=(1, 1),
            continual_pretraining=LIKELIHOOD,
            fine_tuning=LIKELIHOOD,
            batch=8,
        ),
        POLICY,
    ),
    "active_vln": policy_gradient(gui.active_vln),
    "aepo": policy_gradient(tool_use.aepo, ("find",)),
    "ai_search_planner": policy_gradient(searching.ai_search_planner, HEAD, 0.1, 0.1, rewards=None),
    "anchored_archer": utterance_critic(hierarchical.anchored_archer, ACTOR, pretrain_steps=0),
    "archer": utterance_critic(hierarchical.archer, ACTOR),
    "archer_offline": utterance_critic(hierarchical.archer_offline, ACTOR),
    "arpo": policy_gradient(tool_use.arpo, ("find",), True),
    "artist": policy_gradient(code_use.artist),
    "arpo_gui": policy_gradient(gui.arpo_gui),
    "bfs_prover": policy_gradient(multi_turn.bfs_prover, 0.1, 0.9),
    "bi_level_ppo": policy_gradient(actor_critic.bi_level_ppo, HEAD),
    "chai": utterance_critic(hierarchical.chai),
    "codevision": policy_gradient(vision.codevision, 0.5),
    "framethinker": policy_gradient(vision.framethinker),
    "meta_spatial": policy_gradient(vision.meta_spatial, False),
    "mgpo": policy_gradient(vision.mgpo),
    "vigorl": policy_gradient(vision.vigorl),
    "vrag_rl": policy_gradient(vision.vrag_rl),
    "cispo": policy_gradient(group_relative.cispo),
    "dapo": policy_gradient(group_relative.dapo, 12, 4),
    "dart": policy_gradient(gui.dart),
    "datamind": policy_gradient(code_use.datamind),
    "dpo": pairwise_method(pairwise.dpo, 1.0),
    "dr_grpo": policy_gradient(group_relative.dr_grpo, 12.0),
    "epo": policy_gradient(multi_turn.epo),
    "epo_strategic": policy_gradient(multi_turn.epo_strategic, "policy"),
    "gated_reward_accumulation": policy_gradient(
        multi_turn.gated_reward_accumulation, ("outcome",), ()
    ),
    "gigpo": policy_gradient(group_relative.gigpo),
    "grpo": policy_gradient(group_relative.grpo),
    "gspo": policy_gradient(group_relative.gspo),
    "igpo": policy_gradient(tool_use.igpo),
    "ilql": token_values(lmrl_gym.ilql),
    "inspo": policy_gradient(tool_use.inspo),
    "mars": policy_gradient(multi_turn.mars),
    "mars_sql": policy_gradient(code_use.mars_sql),
    "mind": policy_gradient(multi_turn.mind, 0.1, ("a",), 0.1),
    "monte_carlo": token_values(lmrl_gym.monte_carlo),
    "online_filtered_cloning": policy_gradient(lmrl_gym.online_filtered_cloning),
    "ppo": policy_gradient(actor_critic.ppo, HEAD),
    "ppo_with_imitation": policy_gradient(lmrl_gym.ppo_with_imitation, HEAD),
    "practitioners_ppo": policy_gradient(actor_critic.practitioners_ppo, HEAD),
    "practitioners_rloo": policy_gradient(actor_critic.practitioners_rloo),
    "r1_code_interpreter": policy_gradient(code_use.r1_code_interpreter),
    "retool": policy_gradient(code_use.retool),
    "rebel": pairwise_method(pairwise.rebel, 1.0),
    "refuel": pairwise_method(pairwise.refuel, 1.0),
    "refuel_online": pairwise_method(pairwise.refuel_online, top_layers=0),
    "reinforce_offline": utterance_critic(hierarchical.reinforce_offline, ACTOR),
    "reinforce_plus_plus": policy_gradient(group_relative.reinforce_plus_plus),
    "reinforce_plus_plus_with_baseline": policy_gradient(
        group_relative.reinforce_plus_plus_with_baseline
    ),
    "rloo": policy_gradient(group_relative.rloo),
    "scaling_inter": policy_gradient(multi_turn.scaling_inter),
    "chain_of_agents": policy_gradient(searching.chain_of_agents),
    "search_r1": policy_gradient(searching.search_r1),
    "search_self_play": policy_gradient(searching.search_self_play),
    "self_correcting": policy_gradient(multi_turn.self_correcting, 1),
    "simpletir": policy_gradient(tool_use.simpletir),
    "spear": policy_gradient(tool_use.spear, 12.0, replay_size=2),
    "supo": policy_gradient(tool_use.supo),
    "turn_ppo": policy_gradient(actor_critic.turn_ppo, HEAD),
    "ufo": policy_gradient(actor_critic.ufo, HEAD),
    "ui_s1": policy_gradient(gui.ui_s1),
    "ui_tars_2": policy_gradient(actor_critic.ui_tars_2, HEAD, warmup=1),
    "vapo": policy_gradient(actor_critic.vapo, HEAD, warmup=1),
    "vla_rl": policy_gradient(actor_critic.vla_rl, HEAD, warmup=1),
    "webagent_r1": policy_gradient(tool_use.webagent_r1),
}
