"""`PhaseEvaluator`: evaluates the current weights every so many steps of a phase."""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import load_params
from agentrl_jax.policy import Params
from agentrl_jax.reporting.statistics import mean_interval
from agentrl_jax.rollout.lazy_tasks import Tasks
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.best_checkpoint import BestSoFar, metric_value
from agentrl_jax.training.config import EvaluationConfig, Experiment, Phase
from agentrl_jax.training.evaluation import phase_strategy, with_temperature
from agentrl_jax.training.per_agent import agent_weights
from agentrl_jax.training.rollout_metrics import episode_stats, rollout_metrics
from agentrl_jax.training.run import Run
from agentrl_jax.training.task_source import TaskSource, numbered
from agentrl_jax.workers.pool import Task

PREFIX = "evaluation"


class PhaseEvaluator:
    """Plays the same tasks with the same random numbers at every evaluation of a phase, and keeps
    account of the best step.

    All processes play together, and know the same metrics.
    """

    def __init__(self, run: Run, name: str, phase: Phase) -> None:
        self._run, self._name, self._phase = run, name, phase
        self._tasks: dict[str, Tasks] = {}  # by label, made at the first evaluation
        self.best = BestSoFar()

    @property
    def stops(self) -> bool:
        """Whether the phase ends with the step that was last evaluated."""
        return self.best.is_exhausted(self._phase.best)

    def load(self, state: dict[str, Any] | None) -> None:
        """Restore the account of the best step from a checkpoint's host state."""
        self.best = BestSoFar(**state) if state else BestSoFar()

    def is_due(self, step: int) -> bool:
        """Whether the weights after `step` steps are evaluated."""
        every = self._phase.evaluate_every
        return every > 0 and (step % every == 0 or step == self._phase.steps)

    def must_save(self, step: int) -> bool:
        """Whether the state after `step` steps is the best, or the last one."""
        return self.is_due(step) and (self.best.step == step or self.stops)

    def evaluate(
        self, step: int, params: Params, feed_state: Callable[[], Any]
    ) -> dict[str, float]:
        """The metrics of the weights after `step` steps, which the engines hold already.

        Args:
            step: of the phase.
            params: of the train state.
            feed_state: gives the state of the phase's experience.

        Raises:
            UserError: there is no task, or no metric of the configured name.
        """
        start = time.monotonic()
        metrics: dict[str, float] = {}
        rows = self._phase.rows()
        for agent in rows.values():
            prefix = PREFIX if len(rows) == 1 else f"{agent}/{PREFIX}"
            weights = agent_weights(self._phase, params)[agent]
            metrics |= self._evaluate_agent(agent, weights, feed_state, prefix)
        self._run.reporter.log(_sentence(self._name, step, metrics))
        if self._phase.best.metric:
            value = metric_value(self._phase.best, metrics, self._name)
            self.best = self.best.observe(self._phase.best, step, value)
            if self.stops and step < self._phase.steps:
                self._run.reporter.log(self.stop_sentence(step))
        return {**metrics, "time/evaluation": time.monotonic() - start}

    def _evaluate_agent(
        self, agent: str, params: Params, feed_state: Callable[[], Any], prefix: str
    ) -> dict[str, float]:
        run, config = self._run, self._run.experiment.evaluation
        policy = run.models[agent].policy
        strategy = phase_strategy(run.experiment, self._name, policy, params, feed_state)
        runtime = with_temperature(run.runtime, config.temperature)
        group_stats: list[dict[str, Any]] = []
        for label, tasks in self._all_tasks().items():
            groups = runtime.collect(
                strategy or IndependentEpisodes(1, agent), tasks, (config.training_seed, 0)
            )
            parts = run.process_group.all_gather(f"evaluation{label}", episode_stats(groups))
            group_stats += run.process_group.interleave(parts)
        labels = dict.fromkeys(group["environment"] for group in group_stats)
        metrics = rollout_metrics(group_stats, list(labels) if len(labels) > 1 else (), prefix)
        returns = [stats[0] for group in group_stats for stats in group["played"]]
        return {**metrics, f"{prefix}/return_interval": mean_interval(returns)[1]}

    def _all_tasks(self) -> dict[str, Tasks]:
        if not self._tasks:
            experiment = self._run.experiment
            self._tasks = {
                label: numbered(heldout_tasks(source, label, experiment), label=label)
                for label, source in self._run.evaluations.sources.items()
            }
        return self._tasks

    def stop_sentence(self, step: int) -> str:
        """Why the phase stops."""
        config, best = self._phase.best, self.best
        at_best = "" if best.value is None else f", {best.value:.4g} after step {best.step}"
        return (
            f"{self._name} stops early after step {step} of {self._phase.steps}: "
            f"{config.metric} has had no new best value in {best.without_improvement} evaluations"
            f"{at_best}"
        )

    def finish(self, step: int | None, params: Params) -> Params:
        """The weights with which the phase ends after `step` steps: the best ones, where it says
        so. `params` are the newest.
        """
        if self._phase.evaluate_every and step is not None:
            self._run.best_checkpoints[self._name] = self.summary(step)
        if not self._phase.best.restore or self.best.step in (None, step):
            return params
        self._run.reporter.log(f"{self._name} ends with the weights after step {self.best.step}")
        folder = self._run.run_dir / "checkpoints" / self._name
        shardings = jax.tree.map(lambda x: x.sharding, params)
        group = self._run.process_group
        return load_params(folder, params, shardings, process_group=group, step=self.best.step)

    def summary(self, step: int) -> dict[str, Any]:
        """What summary.json says of the phase, which ended after `step` steps."""
        return {
            "metric": self._phase.best.metric,
            "best_step": self.best.step,
            "best_value": self.best.value,
            "evaluations": self.best.evaluations,
            "stopped_early_after": step if step < self._phase.steps else None,
            "restored_best": self._phase.best.restore,
        }


def heldout_tasks(source: TaskSource, label: str, experiment: Experiment) -> Sequence[Task]:
    """The tasks of evaluations while training: none of them is one of the evaluation after the
    phase.

    A source of records has the same ones for every seed: then they are those after the records of
    that evaluation.

    Raises:
        UserError: there is no other task.
    """
    config = experiment.evaluation
    final = _fixed_tasks(source, config.episodes, config.seed, experiment)
    reserved = {task.name for task in final}
    candidates = _fixed_tasks(
        source, config.episodes + config.training_episodes, config.training_seed, experiment
    )
    tasks = _first_others(candidates, reserved, config)
    if not tasks:
        raise UserError(
            f"the evaluation after a phase plays all {len(candidates)} tasks"
            f"{f' of {label!r}' if label else ''}: lower config.evaluation.episodes, so that some "
            "are left for the evaluations while training"
        )
    return tasks


def _fixed_tasks(source: TaskSource, count: int, seed: int, experiment: Experiment) -> Tasks:
    return source.fixed_tasks(count, seed, experiment.environment)


def _first_others(candidates: Tasks, reserved: set[str], config: EvaluationConfig) -> list[Task]:
    """The first `training_episodes` candidates whose name is not reserved."""
    others = (task for task in candidates if task.name not in reserved)
    return list(itertools.islice(others, config.training_episodes))


def _sentence(name: str, step: int, metrics: dict[str, float]) -> str:
    """A line about an evaluation: the mean returns and success rates."""
    main_metrics = {
        metric: value
        for metric, value in metrics.items()
        if metric.rpartition("/")[2] in ("return", "success")
    }
    values = ", ".join(f"{metric} {value:.3f}" for metric, value in main_metrics.items())
    return f"{name} after step {step}: {values or 'every episode failed'}"
