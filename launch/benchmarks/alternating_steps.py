"""Small runs in which every other step does without something, and what that step saves."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.configs import chain_gigpo, price_list_base
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.rivals import quartiles, round_significant
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import (
    EvaluationConfig,
    ExperienceIterator,
    Experiment,
    Phase,
    RunContext,
    Source,
)
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Group

WARM_UP = 4  # steps of each phase that compile
RESAMPLES = 2000  # of the pairs of steps, for an interval
Switch = Callable[[RunContext, bool], None]


@dataclass
class AlternatingSteps:
    """A source whose steps are with and without what `switch` turns on and off: with, without,
    without, with, and so on.
    """

    source: Source
    switch: Switch
    on_policy: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.on_policy = self.source.on_policy
        self.starts: list[float] = []  # of the steps, in seconds, once all before is written

    def open(self, run: RunContext) -> ExperienceIterator:
        return AlternatingIterator(self, run, self.source.open(run))


@dataclass(frozen=True)
class AlternatingIterator(ExperienceIterator):
    """The groups of the source."""

    config: AlternatingSteps
    run: RunContext
    iterator: ExperienceIterator

    @property
    def labels(self) -> Sequence[str]:
        return self.iterator.labels

    def next(self, step: int) -> list[Group]:
        self.run.read_trajectories()  # waits until those of the step before are written
        self.config.starts.append(time.perf_counter())
        self.config.switch(self.run, is_with(step))
        return self.iterator.next(step)

    def metrics(self) -> dict[str, float]:
        return self.iterator.metrics()

    def state(self) -> Any:
        return self.iterator.state()


def is_with(step: int) -> bool:
    """Whether a step is one of those with it."""
    return step % 4 in (0, 3)


def alternate_signs(inputs: CreditInputs) -> np.ndarray:
    """An advantage that is never 0, so that every step trains all of its tokens."""
    return 1.0 - 2.0 * (inputs.token_trajectory % 2)


def tiny() -> Experiment:
    """Fine-tuning and a policy gradient on the chain: episodes of many short turns of a model of 60
    thousand weights.
    """
    experiment = chain_gigpo.get_config()
    rl = experiment.phases["rl"]
    assert isinstance(rl.algorithm, type(grpo()))
    rl.algorithm = dataclasses.replace(rl.algorithm, advantage=alternate_signs)
    return experiment


def base() -> Experiment:
    """The same of `agentrl/base-4m` on a price list, with a chat template and tools."""
    experiment = price_list_base.get_config()
    algorithm = grpo(
        optimizer=AdamWConfig(1e-5), bin_length=price_list_base.MAX_LENGTH, microbatch=8
    )
    experiment.phases["rl"] = Phase(
        "RL",
        Rollouts(tasks=4, strategy=IndependentEpisodes(4)),
        dataclasses.replace(algorithm, advantage=alternate_signs),
        steps=1,
        checkpoint_every=1000,
    )
    return experiment


EXPERIMENTS: dict[str, Callable[[], Experiment]] = {"tiny": tiny, "base": base}


def alternating_experiment(model: str, switch: Switch, steps: int) -> Experiment:
    """The experiment of that name with alternating steps, without evaluations.

    Raises:
        UserError: there is none of that name.
    """
    if model not in EXPERIMENTS:
        raise UserError(f"--model={model} is none of {', '.join(EXPERIMENTS)}")
    experiment = EXPERIMENTS[model]()
    for phase in experiment.phases.values():
        # The last one's end is not seen.
        phase.steps, phase.source = steps + WARM_UP + 1, AlternatingSteps(phase.source, switch)
    experiment.evaluation = EvaluationConfig(episodes=0, players=())
    if experiment.demonstrations:
        experiment.demonstrations.episodes = 400
    return experiment


def seconds_by_step(phase: Phase) -> np.ndarray:
    """The seconds of each step of a phase after its warm-up, what it leaves to be written
    included.
    """
    assert isinstance(phase.source, AlternatingSteps)
    return np.diff(phase.source.starts)[WARM_UP:]


def cost_of_switch(seconds: np.ndarray) -> dict[str, Any]:
    """Quartiles of the seconds of steps with and without, and by how much those with take longer:
    the ratio of the medians, with an interval of 95 % by resampling pairs of successive steps.

    Args:
        seconds: of successive steps from a multiple of four on; a last odd one is left out.
    """
    pairs = seconds[: len(seconds) // 2 * 2].reshape(-1, 2)
    first_is_with = np.array([is_with(2 * i) for i in range(len(pairs))])
    on = np.where(first_is_with, pairs[:, 0], pairs[:, 1])
    off = np.where(first_is_with, pairs[:, 1], pairs[:, 0])
    chosen = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    ratios = np.median(on[chosen], 1) / np.median(off[chosen], 1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return {
        "seconds_with": quartiles(on.tolist()),
        "seconds_without": quartiles(off.tolist()),
        "ratio": round_significant(float(np.median(on) / np.median(off))),
        "ratio_interval": [round_significant(float(low)), round_significant(float(high))],
    }
