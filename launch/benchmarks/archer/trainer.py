"""`TurnTrainer`: trains from one fine-tuned policy a seed until a budget of environment turns.

All seeds of a task and side are trained in one process by one algorithm object, so that each of its
programs is compiled once; nothing but the curve is kept.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import numpy as np

from agentrl_jax.keys import seed_of
from agentrl_jax.launch.benchmarks.archer.rho import (
    CreditVariance,
    Posterior,
    rerolled_variance,
)
from agentrl_jax.learner.learner import fetch_metrics
from agentrl_jax.policy import Params
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.training.algorithm import Algorithm, AlgorithmConfig
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.demonstrations import DemonstrationIterator
from agentrl_jax.training.run import Run
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.training.task_source import numbered
from agentrl_jax.trajectories import Group

REPORTED = ("correlation", "repeated", "entropy", "kl", "reads", "state_share", "beta")


@dataclass
class TurnCurve:
    """What a side of a seed did: (environment turns so far, mean return of the evaluation games).

    The evaluation games are the same at every point, and their turns are not counted.
    """

    turns: list[int] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    iterations: int = 0
    policy_updates: int = 0
    critic_updates: int = 0
    cpu_seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)  # means over the iterations


class TurnTrainer:
    """The environment, the engine and the fine-tuned policies of a task."""

    def __init__(self, experiment: Experiment, run_dir: Path) -> None:
        """Open the run folder; `experiment` has the phase `sft`, and no seed of its own."""
        self._run = Run(experiment, run_dir, quiet=True)
        self._context = self._run.begin_phase("sft")
        self._folder = run_dir / "starts"
        self._algorithms: dict[str, tuple[Algorithm, Any]] = {}  # with their first host state
        self._cloning: Algorithm | None = None
        self._starts: dict[int, Params] = {}

    def __enter__(self) -> "TurnTrainer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run.close()

    def start(self, seed: int) -> Params:
        """The policy that all sides of a seed start from, fine-tuned where it is not stored."""
        if seed not in self._starts:
            self._starts[seed] = self._stored_start(seed)
        return self._starts[seed]

    def _stored_start(self, seed: int) -> Params:
        path = self._folder / f"{seed}.npz"
        leaves, tree = jax.tree.flatten(self._run.params)
        if not path.exists():
            values = [np.asarray(x) for x in jax.tree.leaves(self._fine_tuned(seed))]
            path.parent.mkdir(exist_ok=True)
            with atomic_write(path) as unfinished, open(unfinished, "wb") as file:
                np.savez(file, *values)
        with np.load(path) as stored:
            values = [stored[name] for name in stored.files]
        placed = [jax.device_put(x, like.sharding) for x, like in zip(values, leaves, strict=True)]
        return jax.tree.unflatten(tree, placed)

    def _fine_tuned(self, seed: int) -> Params:
        run, phase = self._run, self._run.experiment.phases["sft"]
        config = phase.algorithm
        assert isinstance(phase.source, Demonstrations) and run.demonstrations is not None
        assert isinstance(config, AlgorithmConfig)
        if self._cloning is None:
            self._cloning = config.build(run.policy, run.mesh, phase.steps)
        key = jax.random.key(seed)
        params = run.experiment.policy.initial_params(run.policy, key, run.mesh)
        state = self._cloning.init(key, params)
        batches = DemonstrationIterator(
            run.demonstrations, run.agent, phase.source.batch, seed_of(seed, 1), run.process_group
        )
        for step in range(phase.steps):
            state, _ = self._cloning.step(state, batches.next(step), run.runtime)
        return state.params

    def play_start(self, seed: int, games: int) -> list[Group]:
        """Games of the policy that a seed starts from."""
        self._run.runtime.publish(self.start(seed), 0)
        return self._play(IndependentEpisodes(1), games)

    def rerolled_variance(
        self, seed: int, states: int, utterances: int, games: int, posterior: Posterior
    ) -> CreditVariance:
        """`rho.rerolled_variance` of the policy that a seed starts from."""
        self._run.runtime.publish(self.start(seed), 0)
        tasks = self._tasks(states)
        return rerolled_variance(self._run.runtime, tasks, utterances, games, posterior, seed)

    def evaluate(self, games: int) -> float:
        """The mean return of the evaluation games of the weights that the engine holds."""
        return _mean_return(self._play(IndependentEpisodes(1), games))

    def evaluate_scripted(self, player: str, games: int) -> float:
        """The mean return of a scripted policy in the evaluation games."""
        return _mean_return(self._play(ScriptedEpisodes(player), games))

    def _play(self, strategy: Any, games: int) -> list[Group]:
        seed = self._run.experiment.evaluation.seed
        return self._run.runtime.collect(strategy, self._tasks(games), (seed, 0))

    def _tasks(self, games: int) -> Any:
        environment, seed = self._run.experiment.environment, self._run.experiment.evaluation.seed
        return numbered(environment.fixed_tasks(games, seed, environment))

    def train(
        self, side: str, experiment: Experiment, budget: int, evaluate_every: int, games: int
    ) -> TurnCurve:
        """Train the phase `rl` of an experiment from the start of its seed.

        Args:
            side: a name of everything in the experiment but its seed.
            experiment: of the task of this trainer.
            budget: environment turns, after which the training ends.
            evaluate_every: turns between evaluations, which begin before the first update.
            games: of each evaluation.
        """
        run, seed, curve = self._run, experiment.seed, TurnCurve()
        began, algorithm = time.process_time(), self._algorithm(side, experiment)
        state = algorithm.init(jax.random.key(seed), self.start(seed))
        run.runtime.publish(state.params, 0)
        algorithm.begin_phase(state, run.runtime)
        context = replace(self._context, experiment=replace(run.experiment, seed=seed))
        iterator = experiment.phases["rl"].source.open(context)
        collected: dict[str, list[float]] = {}
        turns = next_evaluation = 0
        while True:
            if turns >= next_evaluation or turns >= budget:
                curve.turns.append(turns)
                curve.returns.append(self.evaluate(games))
                next_evaluation = (turns // evaluate_every + 1) * evaluate_every
            if turns >= budget:
                break
            groups = iterator.next(curve.iterations)
            turns += sum(group.num_turns_played for group in groups if _is_played(group))
            state, metrics = algorithm.step(state, groups, run.runtime)
            curve.iterations += 1
            run.runtime.publish(state.params, curve.iterations)
            curve.policy_updates += len(metrics["device"])
            curve.critic_updates += len(metrics.get("critic", []))
            _collect(collected, metrics)
        curve.cpu_seconds = round(time.process_time() - began, 1)
        curve.metrics = {name: round(float(np.mean(x)), 4) for name, x in collected.items()}
        return curve

    def _algorithm(self, side: str, experiment: Experiment) -> Algorithm:
        """The algorithm of a side as it is built, whatever it has trained before."""
        if side not in self._algorithms:
            phase = experiment.phases["rl"]
            config = phase.algorithm
            assert isinstance(config, AlgorithmConfig)
            built = config.build(self._run.policy, self._run.mesh, phase.steps)
            self._algorithms[side] = built, built.host_state()
        algorithm, first_state = self._algorithms[side]
        algorithm.load_host_state(first_state)
        return algorithm


def _is_played(group: Group) -> bool:
    """Whether the policy played a group, which is no demonstration."""
    calls = [call for t in group.trajectories for turn in t.turns for call in turn.calls]
    return all(call.source != "demonstration" for call in calls)


def _mean_return(groups: Sequence[Group]) -> float:
    return float(np.mean([t.total_reward for group in groups for t in group.trajectories]))


def _collect(collected: dict[str, list[float]], metrics: dict[str, Any]) -> None:
    """Append the metrics of an iteration that tell of the critic and of the policy's spread."""
    last = fetch_metrics(metrics["device"][-1]) if metrics["device"] else {}
    for name, value in {**last, **metrics}.items():
        if any(word in name for word in REPORTED) and np.ndim(value) == 0 and np.isfinite(value):
            collected.setdefault(name, []).append(float(value))
