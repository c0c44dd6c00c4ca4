"""Every published method takes steps, and with its distinguishing knob at the neutral value is its base to the bit."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hand_made import Averaging, grown_groups, mesh_of, sampled_by, told

from agentrl_jax.algorithms import critics as critics_of_tokens
from agentrl_jax.algorithms import policy_gradient
from agentrl_jax.algorithms.advantages import group_normalized
from agentrl_jax.algorithms.aggregation import step_mean, token_mean, turn_mean
from agentrl_jax.algorithms.critics import CriticConfig
from agentrl_jax.algorithms.gae import GAE
from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.keying import group_of_turn, turn_of_token
from agentrl_jax.algorithms.methods import critics, dialogue, groups, gui, lmrl, tools
from agentrl_jax.algorithms.mismatch import Clipped
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.rewards import Outcome
from agentrl_jax.algorithms.surrogates import PPO, reinforce
from agentrl_jax.algorithms.terms import KL, Entropy, EntropyBand
from agentrl_jax.algorithms.turn_credit import RewardToGo, TurnKeyed, episode_return
from agentrl_jax.batch import Batch
from agentrl_jax.learner import Learner, TrainState
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.runtime import Runtime
from agentrl_jax.shares import share_of
from agentrl_jax.trajectories import Group
from agentrl_jax.workers import InProcess

POLICY = Averaging()
PARAMS = POLICY.init(jax.random.key(0))
ADAM = AdamWConfig(learning_rate=0.03, eps=1e-3)
HEAD = HeadConfig(layers=0, scale=0.1)
SHAPE: dict[str, Any] = {"optimizer": ADAM, "bin_length": 24, "microbatch": 4}


def experience(seed: int, uniform: bool = False) -> list[Group]:
    """Six groups of four episodes of one to three turns, solved or not, with all that pieces read of a turn."""
    rng = np.random.default_rng(seed)

    def turns() -> list[tuple[int, int, bool, float]]:
        return [(2, int(rng.integers(1, 4)), False, 0.0) for _ in range(rng.integers(2, 4))]

    made = grown_groups([[turns() for _ in range(4)] for _ in range(6)], seed=seed)
    facts: dict[str, Callable[[Any, int], Any]] = {
        "formatted": lambda turn, place: bool(rng.random() < 0.9), "legal": lambda turn, place: bool(rng.random() < 0.9),
        "answer": lambda turn, place: int(rng.integers(3)), "void": lambda turn, place: False, "weight": lambda turn, place: 1.0,
        "gold_logp": lambda turn, place: -float(rng.random()), "match": lambda turn, place: ("exact", "type", "parsed")[rng.integers(3)],
        "critical": lambda turn, place: bool(rng.random() < 0.5), "distance": lambda turn, place: 3.0 * float(rng.random()),
        "stopped": lambda turn, place: True, "full_score": lambda turn, place: 1.0, "tool_calls": lambda turn, place: 1,
        "anchor": lambda turn, place: place,
    }  # fmt: skip
    if uniform:
        facts |= {
            "formatted": lambda turn, place: True, "legal": lambda turn, place: True, "answer": lambda turn, place: 0,
            "match": lambda turn, place: "exact", "critical": lambda turn, place: False, "distance": lambda turn, place: 1.5,
            "gold_logp": lambda turn, place: -1.0,
        }  # fmt: skip

    def judged(i: int, group: Group) -> Group:
        members = []
        for j, trajectory in enumerate(group.trajectories):
            solved = True if uniform else (j + i) % 4 < 1 + i % 2
            *first, last = trajectory.turns
            last = dataclasses.replace(last, reward=float(solved), rewards={"outcome": float(solved)})
            members.append(trajectory.replace(turns=(*first, last), success=solved, task=group.task, agent="strategist"))
        return dataclasses.replace(group, trajectories=tuple(members))

    return sampled_by(POLICY, PARAMS, [judged(i, group) for i, group in enumerate(told(made, **facts))], gap=0.1)


GROUPS = experience(3)
METHODS: dict[str, Callable[..., PolicyGradientConfig]] = {
    "dapo": lambda **s: groups.dapo(12, 4, **s), "gspo": groups.gspo, "cispo": groups.cispo, "rloo": groups.rloo,
    "reinforce++": groups.reinforce_plus_plus, "reinforce++ baseline": groups.reinforce_plus_plus_with_baseline, "gigpo": groups.gigpo,
    "ppo": lambda **s: critics.ppo(HEAD, **s), "turn ppo": lambda **s: critics.turn_ppo(HEAD, **s),
    "bi-level ppo": lambda **s: critics.bi_level_ppo(HEAD, **s), "vapo": lambda **s: critics.vapo(HEAD, warmup=1, **s),
    "ui-tars-2": lambda **s: critics.ui_tars_2(HEAD, warmup=1, **s), "vla-rl": lambda **s: critics.vla_rl(HEAD, warmup=1, **s),
    "ufo": lambda **s: critics.ufo(HEAD, **s), "guide, ppo": lambda **s: critics.practitioners_ppo(HEAD, **s),
    "guide, rloo": critics.practitioners_rloo, "dart": gui.dart, "arpo, gui": gui.arpo_gui, "active-vln": gui.active_vln,
    "ui-s1": gui.ui_s1, "ui-s1, released": lambda **s: gui.ui_s1(released=True, **s), "simpletir": tools.simpletir,
    "arpo": lambda **s: tools.arpo(hard=True, **s), "aepo": tools.aepo, "spear": lambda **s: tools.spear(12.0, size=2, **s),
    "igpo": tools.igpo, "supo": tools.supo, "webagent-r1": tools.webagent_r1, "inspo": tools.inspo,
    "score": lambda **s: dialogue.self_correcting(1, **s), "mind": lambda **s: dialogue.mind(0.1, ("Wait",), 0.1, **s),
    "epo, strategic": dialogue.epo_strategic, "epo": dialogue.epo, "scaling-inter": dialogue.scaling_inter,
    "g-ra": lambda **s: dialogue.gated(("outcome",), (), **s), "mars": dialogue.mars,
    "bfs-prover": lambda **s: dialogue.bfs_prover(0.1, 0.9, **s), "online filtered": lmrl.online_filtered,
    "ppo, lmrl": lambda **s: lmrl.ppo(HEAD, **s),
}  # fmt: skip
SIGNAL_WITHOUT_DIFFERENCE = {  # a critic's surprise, weights without a baseline, turns that differ from each other
    "igpo", "mars", "ppo", "turn ppo", "bi-level ppo", "vapo", "ui-tars-2", "vla-rl", "ufo", "guide, ppo", "score",
    "epo, strategic", "bfs-prover", "online filtered", "ppo, lmrl",
}  # fmt: skip


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InProcess()) as runtime:
        yield runtime


def trained(config: PolicyGradientConfig, runtime: Runtime, batches: Sequence[Sequence[Group]]) -> tuple[Any, list[dict[str, Any]]]:
    algorithm = config.build(POLICY, mesh_of(), steps=100)
    state, metrics = algorithm.init(jax.random.key(0), PARAMS), []
    for batch in batches:
        state, found = algorithm.step(state, batch, runtime)
        metrics.append(found)
    return jax.device_get(state.params), metrics


class Paper(Learner):
    """In place of a `Learner`: remembers what it is given, scores tokens by a fixed rule, and compiles nothing."""

    def __init__(self, model: Any, tx: Any, loss: Any, mesh: Any, read: Any = None) -> None:
        self.share, self.loss, self._outputs, self.given = share_of(mesh), loss, 1 if read else 2, []

    def init(self, key: Any, params: Any) -> TrainState:
        return TrainState(step=jnp.int32(0), params=params, opt_state=(), key=key)

    def update(self, state: TrainState, microbatches: Sequence[Any]) -> tuple[TrainState, dict[str, Any]]:
        self.given += microbatches
        return dataclasses.replace(state, step=state.step + 1), {"gradient_norm": jnp.float32(1.0)}

    def score(self, params: Any, batch: Batch) -> tuple[Any, ...]:
        rule = np.sin(1.7 * np.asarray(batch.tokens) + 0.3 * np.asarray(batch.positions)).astype(np.float32)
        return tuple(jnp.asarray(x) for x in (0.1 * rule - 2.0, 2.0 + rule)[: self._outputs])


def written(config: PolicyGradientConfig, batches: Sequence[Sequence[Group]], runtime: Runtime, monkeypatch: Any) -> tuple[Any, list, list]:
    """The algorithm, the microbatches that its learner was given, and the steps' metrics."""
    for module in (policy_gradient, critics_of_tokens):
        monkeypatch.setattr(module, "Learner", Paper)
    algorithm = config.build(POLICY, mesh_of(), steps=100)
    state, metrics = algorithm.init(jax.random.key(0), PARAMS), []
    for batch in batches:
        state, found = algorithm.step(state, batch, runtime)
        metrics.append(found)
    learner = algorithm._learner
    assert isinstance(learner, Paper)
    return algorithm, learner.given, metrics


def felt(algorithm: Any, batches: Sequence[Any], gap: float = 0.3) -> list[Any]:
    """Losses and gradients of microbatches at log-probs and entropies made up, with their weights."""
    rng = np.random.default_rng(0)
    found = []
    for one in jax.tree.map(jnp.asarray, list(batches)):
        mask, weight = one.batch.action_mask, one.batch.weight
        logp = jnp.where(mask, one.proximal_logp + jnp.asarray(rng.normal(0, gap, mask.shape), jnp.float32), 0.0)
        entropy = jnp.asarray(rng.random(mask.shape), jnp.float32)

        def total(logp: Any, entropy: Any, one: Any = one, mask: Any = mask, weight: Any = weight) -> Any:
            return jnp.sum(jnp.where(mask, weight * algorithm._learner.loss(logp, entropy, one)[0], 0.0))

        found.append(jax.value_and_grad(total, argnums=(0, 1))(logp, entropy))
    return found


def equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


def bare(config: PolicyGradientConfig) -> PolicyGradientConfig:
    """Without KL and entropy, which move the weights without any signal."""
    return dataclasses.replace(config, regularisers={})


COMPILED = (  # each another program: surrogates, regularisers, critics
    "gspo", "cispo", "vapo", "vla-rl", "ufo", "guide, ppo", "dart", "arpo", "aepo", "spear", "igpo", "score", "epo", "simpletir",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_a_method_learns_from_differences_and_stays_finite(name: str, runtime: Runtime):
    params, metrics = trained(METHODS[name](**SHAPE), runtime, [GROUPS, experience(4)])
    assert not equal(params, PARAMS) and all(np.isfinite(x).all() for x in jax.tree.leaves(params))
    assert metrics[-1]["skipped"] == 0 and metrics[-1]["tokens/identity"] == 1.0
    for one in metrics:
        assert all(np.isfinite(x) for x in one.values() if isinstance(x, float))


@pytest.mark.parametrize("name", [name for name in METHODS if name not in SIGNAL_WITHOUT_DIFFERENCE])
def test_where_all_is_equal_there_is_nothing_to_learn(name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    same = experience(5, uniform=True)  # and the same words: what depends on lengths and entropies is equal as well
    level = [dataclasses.replace(group, trajectories=(group.trajectories[0],) * len(group.trajectories)) for group in same]
    config = bare(METHODS[name](**SHAPE))
    _, given, metrics = written(config, [level], runtime, monkeypatch)
    assert given == [] and metrics[0]["skipped"] == config.epochs * config.minibatches


@pytest.mark.parametrize("name", METHODS)
def test_nothing_to_learn_from_is_a_skip(name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    config = METHODS[name](**SHAPE)
    _, given, metrics = written(config, [[], [Group("lost", (), dropped=4)], GROUPS], runtime, monkeypatch)
    assert [one["skipped"] for one in metrics[:2]] == [config.epochs * config.minibatches] * 2 and given


BASE = {"advantage": group_normalized, "aggregation": token_mean}


def ppo_base(surrogate: Any = None, **settings: Any) -> PolicyGradientConfig:
    return PolicyGradientConfig(**{**BASE, "surrogate": surrogate or PPO(), **settings})


def plain_ppo(**settings: Any) -> PolicyGradientConfig:
    return critics.ppo(HEAD, **settings)


CLIP_HIGHER = PPO(0.2, 0.28)
NEUTRAL: dict[str, tuple[Callable[..., PolicyGradientConfig], Callable[..., PolicyGradientConfig]]] = {
    "dapo without its filter": (lambda **s: groups.dapo(filter=None, **s), lambda **s: ppo_base(CLIP_HIGHER, **s)),
    "gigpo without its step": (
        lambda **s: groups.gigpo(weight=0.0, **s), lambda **s: ppo_base(**s, advantage=groups.group_centred)),
    "vapo: lambda 1, no warm-up, no likelihood": (
        lambda **s: critics.vapo(HEAD, alpha=1e12, warmup=0, regularisers={}, **s),
        lambda **s: critics.ppo(HEAD, advantage=GAE(lam=1.0 - 1e-12, critic_lam=1.0), surrogate=CLIP_HIGHER, **s)),
    "ufo: no decay, no repetition, all groups": (
        lambda **s: critics.ufo(HEAD, decay=1.0, repetition=0.0, share=1.0, **{**s, "regularisers": {}, "rewards": Outcome()}),
        lambda **s: critics.ppo(HEAD, surrogate=CLIP_HIGHER, rewards=Outcome(), **s)),
    "arpo (gui) without replay": (
        lambda **s: gui.arpo_gui(replay=False, format_penalty=0.0, **s), lambda **s: ppo_base(PPO(0.2, 0.3, 3.0), rescore=True, **s)),
    "arpo without branches, hard": (lambda **s: tools.arpo(hard=True, **s), lambda **s: tools.arpo(**s)),
    "aepo without its pieces": (
        lambda **s: tools.aepo(entropy=0.0, keep_gradient=False, **s),
        lambda **s: dataclasses.replace(tools.arpo(**s), surrogate=PPO(dual=3.0), rescore=True)),
    "simpletir without void turns": (tools.simpletir, lambda **s: tools.simpletir(void_filter=False, **s)),
    "spear without replay": (
        lambda **s: tools.spear(12.0, tools=False, auxiliaries=(), **s),
        lambda **s: dataclasses.replace(tools.spear(12.0, tools=False, size=10**6, **s))),
    "supo with one context, none overlong": (tools.supo, lambda **s: ppo_base(CLIP_HIGHER, **s)),
    "inspo with one instruction": (tools.inspo, ppo_base),
    "score: alpha 0, one coefficient, one stage": (
        lambda **s: dialogue.self_correcting(0, alpha=0.0, beta1=0.1, beta2=0.1, gamma=1.0, **s),
        lambda **s: PolicyGradientConfig(
            TurnKeyed(RewardToGo(1.0), key=None), turn_mean, reinforce, regularisers={"kl": KL(0.1)}, **s)),
    "epo without its band": (
        lambda **s: dialogue.epo(EntropyBand(smoothing=0.0), 0.0, **s),
        lambda **s: ppo_base(regularisers={"entropy": Entropy(1e-3), "kl": KL(0.01)}, rescore=True, **s)),
    "g-ra with open gates": (lambda **s: dialogue.gated(("outcome",), (), **s), ppo_base),
    "mind where each turn holds one unit": (
        lambda **s: dialogue.mind(1.0, ("Wait",), 0.0, **s), ppo_base),
    "bfs-prover with all steps": (
        lambda **s: dialogue.bfs_prover(0.0, 1.0, **s), lambda **s: dataclasses.replace(dialogue.bfs_prover(0.2, 0.8, **s), mask=None)),
    "dart: all steps, no truncation, no curation": (
        lambda **s: gui.dart(entropy_share=1.0, trust=float("inf"), sequence_ratio=False, admit=None, replay=None, filter=None, **s),
        lambda **s: PolicyGradientConfig(
            TurnKeyed(episode_return, group_of_turn, std=True, keep_alone=True), step_mean, PPO(0.1, 0.28, 10.0), sequence=turn_of_token,
            rescore=True, mismatch=Clipped(high=float("inf")), regularisers={"kl": KL(0.1)}, **s)),
    "scaling-inter without its curriculum": (
        dialogue.scaling_inter, lambda **s: ppo_base(regularisers={"kl": KL(1e-3)}, epochs=2, **s)),
    "critic warm-up of no steps": (lambda **s: plain_ppo(critic=CriticConfig(HEAD, warmup=0), **s), plain_ppo),
}  # fmt: skip


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_neutral_knob_gives_the_base_to_the_bit(name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    method, base = NEUTRAL[name]
    ours, theirs = (written(make(**SHAPE), [GROUPS, GROUPS], runtime, monkeypatch) for make in (method, base))
    assert len(ours[1]) == len(theirs[1]) > 0
    for a, b in zip(ours[1], theirs[1]):
        for field in ("batch", "ids", "advantage", "likelihood", "proximal_logp"):
            assert equal(getattr(a, field), getattr(b, field)), field
    assert equal(felt(ours[0], ours[1]), felt(theirs[0], theirs[1]))


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_members_and_groups_changes_nothing(name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    shuffled = [dataclasses.replace(group, trajectories=group.trajectories[::-1]) for group in GROUPS[::-1]]
    ours, theirs = (written(METHODS[name](**SHAPE), [GROUPS, batch], runtime, monkeypatch)[1] for batch in (GROUPS, shuffled))

    def told_apart(given: list) -> np.ndarray:
        """What each token is told, without regard to where it is packed."""
        rows = [
            np.stack([x[one.batch.action_mask] for x in (one.batch.tokens, one.batch.sampler_logp, one.advantage, one.batch.weight)], -1)
            for one in given
        ]
        lines = np.concatenate(rows).astype(np.float64)
        lines = lines[(lines[:, 3] != 0) & (lines[:, 2] != 0)]
        return lines[np.lexsort(lines.round(5).T)]

    np.testing.assert_allclose(told_apart(ours), told_apart(theirs), atol=1e-5, rtol=0)


def test_grpo_is_the_smallest_method():
    assert dataclasses.asdict(grpo()) == dataclasses.asdict(PolicyGradientConfig(group_normalized, grpo().aggregation, PPO()))
