"""Numbers that are not finite, planted in a small run: refused, counted, or a stop that names them.

Whatever happens, no checkpoint of the run holds a weight or a state that is not finite.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from outcome import Battery
from support.letter_task import LetterEnvironment
from support.planted_corruptions import in_engine, wrap
from support.small_runs import rollout_source, small_experiment

from agentrl_jax.algorithms.experience.penalties import OverlongPenalty
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods import grpo, ppo
from agentrl_jax.errors import UserError
from agentrl_jax.learner.learning_rate import LearningRate
from agentrl_jax.learner.optimizer import AdamWConfig, OptaxConfig
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.storage import jsonl
from agentrl_jax.training import loop
from agentrl_jax.training.config import Experiment

NAN, INF = float("nan"), float("inf")
STEPS = 4
SHAPE: dict[str, Any] = {"bin_length": 32, "microbatch": 8}
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Case:
    """What is planted, and a pattern of the sentence that stops the run; "": it does not stop.

    `metric` is one that then counts what was planted.
    """

    sentence: str = ""
    method: Callable[[], Any] = lambda: grpo(optimizer=AdamWConfig(1e-2), **SHAPE)
    change: Callable[[Experiment], object] = lambda config: None
    plant: Callable[[Patch], object] = lambda patch: None
    metric: str = ""


def optimized(optimizer: Any) -> Callable[[], Any]:
    return lambda: grpo(optimizer=optimizer, **SHAPE)


def with_slots(**slots: Any) -> Callable[[], Any]:
    return lambda: grpo(optimizer=AdamWConfig(1e-2), **SHAPE, **slots)


def nan_updates(learning_rate: optax.Schedule) -> optax.GradientTransformation:
    return optax.scale(NAN)


def inf_updates(learning_rate: optax.Schedule) -> optax.GradientTransformation:
    def update(updates: Any, *_: Any) -> Any:
        return jax.tree.map(lambda x: jax.numpy.full_like(x, INF), updates)

    return optax.stateless(update)


@dataclass(frozen=True)
class ConstantAdvantage:
    """The same for every token; `name` is a number that a config cannot hold."""

    name: str

    def __call__(self, inputs: Any) -> np.ndarray:
        return np.full(len(inputs.token_trajectory), float(self.name))


def in_steps(index: int, value: Any, every: int = 5) -> Callable[[Patch], object]:
    """One part of what the environment returns, in every fifth step."""
    steps = itertools.count(1)

    def changed(result: Any, *_: Any) -> Any:
        if next(steps) % every:
            return result
        return (*result[:index], value, *result[index + 1 :])

    return lambda patch: wrap(patch, LetterEnvironment, "_step", changed)


def in_initial_weights(value: float) -> Callable[[Patch], object]:
    def changed(params: Any, *_: Any) -> Any:
        leaves, structure = jax.tree.flatten(params)
        return jax.tree.unflatten(structure, [leaves[0].at[..., 0].set(value), *leaves[1:]])

    return lambda patch: wrap(patch, Decoder, "init", changed)


def in_calls(name: str, value: float) -> Callable[[Patch], object]:
    """A field of each sampled token, as the engine records it."""
    return in_engine(
        lambda call: dataclasses.replace(call, **{name: np.full_like(getattr(call, name), value)})
    )


def in_agent(name: str, value: float) -> Callable[[Experiment], object]:
    return lambda config: setattr(config.agent, name, value)


WEIGHTS = "weights are not finite"
CASES = {
    "environment: reward NaN": Case(metric="env/failures", plant=in_steps(1, NAN)),
    "environment: reward inf": Case(metric="env/failures", plant=in_steps(1, INF)),
    "environment: NaN in info": Case(plant=in_steps(4, {"score": NAN})),
    "environment: NaN as a named reward": Case(
        metric="env/failures", plant=in_steps(4, {"rewards": {"style": NAN}})
    ),
    "reward transform: NaN": Case(
        "=nan is not a number", with_slots(rewards=OverlongPenalty(0, 1, NAN))
    ),
    "reward transform: inf": Case("finite", with_slots(rewards=OverlongPenalty(0, 1, INF))),
    "advantage: NaN": Case("finite", with_slots(advantage=ConstantAdvantage("nan"))),
    "advantage: inf": Case("finite", with_slots(advantage=ConstantAdvantage("inf"))),
    "loss: KL coefficient NaN": Case(
        "=nan is not a number", with_slots(regularizers={"kl": KL(NAN)})
    ),
    "loss: KL coefficient inf": Case("finite", with_slots(regularizers={"kl": KL(INF)})),
    "learning rate NaN": Case("=nan is not a number", optimized(AdamWConfig(NAN))),
    "learning rate inf": Case("learning rate", optimized(AdamWConfig(INF))),
    "learning rate 1e38": Case("", optimized(AdamWConfig(1e38))),
    "clip norm NaN": Case("=nan is not a number", optimized(AdamWConfig(1e-2, clip_norm=NAN))),
    "weight decay NaN": Case(
        "=nan is not a number", optimized(AdamWConfig(1e-2, weight_decay=NAN))
    ),
    "updates: NaN": Case(WEIGHTS, optimized(OptaxConfig(nan_updates, LearningRate(1e-3)))),
    "updates: inf": Case(WEIGHTS, optimized(OptaxConfig(inf_updates, LearningRate(1e-3)))),
    "initial weights: NaN": Case("finite", plant=in_initial_weights(NAN)),
    "initial weights: inf": Case("finite", plant=in_initial_weights(INF)),
    "temperature NaN": Case("=nan is not a number", change=in_agent("temperature", NAN)),
    "temperature inf": Case("temperature", change=in_agent("temperature", INF)),
    "sampler log-probs: NaN": Case("logp", plant=in_calls("sampler_logp", NAN)),
    "sampler log-probs: -inf": Case("logp", plant=in_calls("sampler_logp", -INF)),
    "sampler log-probs: inf": Case("logp", plant=in_calls("sampler_logp", INF)),
    "critic: values NaN": Case(
        "=nan is not a number",
        lambda: ppo(HeadConfig(layers=0, scale=NAN), optimizer=AdamWConfig(1e-2), **SHAPE),
    ),
    "critic: values inf": Case(
        "finite", lambda: ppo(HeadConfig(layers=0, scale=INF), optimizer=AdamWConfig(1e-2), **SHAPE)
    ),
}


def attack(battery: Battery) -> None:
    for number, (name, case) in enumerate(CASES.items()):
        expected = f"a stop: {case.sentence}" if case.sentence else case.metric or "no effect"
        run_dir = battery.folder / str(number)
        battery.attack(name, expected, lambda case=case, run_dir=run_dir: train(case, run_dir))


def train(case: Case, run_dir: Path) -> tuple[bool, str]:
    """Whether a run ends as expected with finite checkpoints, and what it said."""
    sentence = ""
    with pytest.MonkeyPatch.context() as patch:
        case.plant(patch)
        config = small_experiment(rollout_source(2, 2), steps=STEPS, checkpoint_every=1)
        config.phases["rl"].algorithm = case.method()
        case.change(config)
        config.evaluation.episodes = 0
        config.environment.retries = 0
        try:
            loop.train(config, run_dir, quiet=True)
        except UserError as error:
            sentence = str(error)
    checkpoints = sorted((run_dir / "checkpoints").glob("*/[0-9]*"))
    damaged = [path.name for path in checkpoints if not is_finite(path)]
    happened = sentence or f"no stop; {last_metrics(run_dir)}"
    if damaged:
        return False, f"checkpoints {damaged} are not finite; {happened}"
    if case.metric and not sum(values_of(run_dir, case.metric)):
        return False, f"{case.metric} is 0; {happened}"
    ok = bool(re.search(case.sentence, sentence)) if case.sentence else not sentence
    return ok and "\n" not in sentence, f"{happened}; {len(checkpoints)} finite checkpoints"


def is_finite(checkpoint: Path) -> bool:
    """Whether every number of a checkpoint's state is finite."""
    with ocp.PyTreeCheckpointer() as reader:
        leaves = [np.asarray(x) for x in jax.tree.leaves(reader.restore(checkpoint / "state"))]
    floats = [x.astype(np.float64) for x in leaves if jax.numpy.issubdtype(x.dtype, np.floating)]
    return all(bool(np.isfinite(x).all()) for x in floats)


def values_of(run_dir: Path, metric: str) -> list[float]:
    """A metric of each step."""
    return [line.get(metric, 0.0) for _, line in jsonl.read_lines(run_dir / "metrics.jsonl")]


def last_metrics(run_dir: Path) -> str:
    """Of the last step what counts failures and updates that were left out."""
    *_, (_, line) = jsonl.read_lines(run_dir / "metrics.jsonl")
    names = ("nonfinite", "critic/nonfinite", "env/failures", "env/dropped", "rollout/return")
    return ", ".join(f"{name} {line[name]}" for name in names if name in line)
