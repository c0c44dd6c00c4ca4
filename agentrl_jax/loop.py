"""The training loop: collect, update, publish, report; and what comes before and after it."""

import shutil
import signal
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np

from agentrl_jax import curves
from agentrl_jax.algorithm import Acting
from agentrl_jax.checkpoint import Keeper
from agentrl_jax.compilations import compilations
from agentrl_jax.errors import Interrupted, UserError
from agentrl_jax.experiment import Experiment, Phase, Telling
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import fetch_metrics
from agentrl_jax.policy import Params
from agentrl_jax.run import Run, describe_rollouts, rollout_facts, write_json
from agentrl_jax.statistics import Summary, difference_interval, summarize


class StopSign:
    """Turns Ctrl-C, or the SIGTERM before a preemption, into a request to stop after the step at work; a second one interrupts at once."""

    def __init__(self) -> None:
        self.up = False

    def __enter__(self) -> "StopSign":
        self._before = {sign: signal.signal(sign, self._raise) for sign in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: Any) -> None:
        for sign, handler in self._before.items():
            signal.signal(sign, handler or signal.SIG_DFL)  # None: jax's own, which is not to be had again

    def _raise(self, signum: int, frame: FrameType | None) -> None:
        if self.up:
            raise KeyboardInterrupt
        self.up = True


def train(experiment: Experiment, run_dir: Path, fresh: bool = False, quiet: bool = False, hosts: Hosts | None = None) -> list[Summary]:
    """Run every phase of the experiment, or what is left of it, and evaluate; returns the table. All `hosts` do it together.

    Raises Interrupted after a Ctrl-C or SIGTERM: the same call goes on from there.
    """
    started, hosts = time.monotonic(), hosts or Hosts()
    if fresh:
        with hosts.leader_first("a fresh start"):
            if hosts.leads:
                discard(run_dir)
    with StopSign() as stop, Run(experiment, run_dir, quiet, hosts) as run:
        seconds = {"setup": time.monotonic() - started}
        params = run.params
        for name, phase in experiment.phases.items():
            params, seconds[name] = run_phase(run, name, phase, params, stop)
            began = time.monotonic()
            run.evaluate_phase(name, params)
            seconds[f"evaluate {phase.label}"] = time.monotonic() - began
        began = time.monotonic()
        for player in experiment.evaluation.players:
            run.evaluate(player, player)
        seconds["evaluate players"] = time.monotonic() - began
        return conclude(run, seconds)


def run_phase(run: Run, name: str, phase: Phase, params: Params, stop: StopSign) -> tuple[Params, float]:
    """Train one phase to its end; returns its parameters and the seconds that its steps took, resumed or not."""
    if phase.publish_every < 1 or phase.checkpoint_every % phase.publish_every:
        raise UserError(f"{name}: weights are published every {phase.publish_every} steps: checkpoint_every must be a multiple of that")
    algorithm = phase.algorithm.build(run.policy, run.mesh, phase.steps)
    state = algorithm.init(jax.random.key(run.experiment.seed), params)
    keeper = Keeper(run.run_dir / "checkpoints" / name)
    done, host = keeper.latest or 0, {"seconds": 0.0}
    if done:
        state, host = keeper.restore(state)
        algorithm.load_host_state(host["algorithm"])
    if isinstance(algorithm, Acting):
        algorithm.act(state, run.runtime)
    if done == phase.steps:
        run.runtime.publish(state.params, done)
        keeper.close()
        return state.params, host["seconds"]
    feed, spent = phase.source.open(run), host["seconds"]
    if done:
        feed.load(host["feed"])
    run.runtime.publish(state.params, done)
    with run.hosts.leader_first("what was recorded before"):
        run.reporter.rewind(list(run.experiment.phases), name, done)
        run.forget_evaluation(phase.label)
    run.reporter.begin(name, phase.steps, done)
    pending: tuple[int, dict[str, Any], float] | None = None
    for step in range(done, phase.steps):
        began, compiled, failed = time.monotonic(), compilations(), run.runtime.failures.metrics()
        groups = feed.next(step)
        collected = time.monotonic()
        state, metrics = algorithm.step(state, groups, run.runtime)
        if phase.source.on_policy and (step + 1) % phase.publish_every == 0:
            run.runtime.publish(state.params, step + 1)
        report(run, name, pending)  # of the step before, while this one is on the device
        failures = {name: count - failed.get(name, 0.0) for name, count in run.runtime.failures.metrics().items()}
        facts = rollout_facts(groups) if phase.source.on_policy else []
        said = run.hosts.gather(f"step {step} of {name}", {"stop": stop.up, "groups": facts, "failures": failures})
        stopping = any(one["stop"] for one in said)
        if phase.source.on_policy:
            metrics |= describe_rollouts(run.hosts.merged([one["groups"] for one in said]))
            metrics |= totals([one["failures"] for one in said])
            recorded = len(run.hosts.mine(range(run.experiment.record_groups)))
            run.reporter.trajectories(name, step, groups[:recorded])
        metrics |= feed.metrics() if isinstance(feed, Telling) else {}
        metrics |= {"time/collect": collected - began, "time/update": time.monotonic() - collected}
        metrics["time/compilations"] = compilations() - compiled
        pending = step, metrics, time.monotonic() - began
        spent += pending[2]
        if stopping or (step + 1) % phase.checkpoint_every == 0 or step + 1 == phase.steps:
            report(run, name, pending)
            pending = None
            keeper.save(step + 1, state, {"feed": feed.state(), "algorithm": algorithm.host_state(), "seconds": spent})
        if stopping:
            run.reporter.say(f"stopped after step {step + 1} of {phase.steps} of {name}; the same command goes on from here")
            raise Interrupted
    run.runtime.publish(state.params, phase.steps)
    run.reporter.end(name)
    keeper.close()
    return state.params, spent


def totals(counts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Sums by name."""
    return {name: sum(one.get(name, 0.0) for one in counts) for name in dict.fromkeys(name for one in counts for name in one)}


def report(run: Run, phase: str, pending: tuple[int, dict[str, Any], float] | None) -> None:
    """Fetch a step's metrics from the device and write them."""
    if pending is None:
        return
    step, metrics, seconds = pending
    for place, prefix in (("device", ""), ("critic", "critic/")):
        updates = [fetch_metrics(m) for m in metrics.pop(place, [])]
        for name in (name for name in (updates[0] if updates else {}) if name != "tokens"):
            metrics[prefix + name] = float(np.mean([m[name] for m in updates if name in m]))
    run.reporter.step(phase, step, metrics, seconds)


def conclude(run: Run, seconds: dict[str, float]) -> list[Summary]:
    """The table, curves.png and summary.json."""
    phases = [phase.label for phase in run.experiment.phases.values()]
    players = run.experiment.evaluation.players
    names = [*players[:-1], *phases, *players[-1:]]
    trajectories = {name: run.evaluated(name) for name in names}
    demonstrations = run.experiment.demonstrations
    shown = {demonstrations.player: "data set"} if demonstrations and not demonstrations.path else {}
    summaries = [summarize(shown.get(name, name), trajectories[name], run.world.score_anchors) for name in names]
    difference = None
    if len(phases) == 2:
        before, after = ({t.seed: t.total_reward for t in trajectories[name]} for name in phases)
        both = sorted(before.keys() & after.keys())  # a world that failed for one of them says nothing
        difference = difference_interval([after[seed] for seed in both], [before[seed] for seed in both])
    run.reporter.table(summaries, difference, (phases[-1], phases[0]) if difference else ("", ""))
    failures = run.hosts.gather("environment failures", run.runtime.failures.record())
    if not run.hosts.leads:
        return summaries
    curves.draw(run.run_dir / "metrics.jsonl", run.run_dir / "curves.png", summaries)
    packages = {name: version(name) for name in ("jax", "flax", "optax", "orbax-checkpoint", "transformers", "grain", "gymnasium", "numpy")}
    content = {
        "experiment": run.experiment.name, "seed": run.experiment.seed, "table": summaries, "difference": difference,
        "seconds": {name: round(value, 2) for name, value in seconds.items()}, "packages": packages,
        "environment_failures": failures[0] if run.hosts.count == 1 else failures,
    }  # fmt: skip
    write_json(run.run_dir / "summary.json", content)
    run.reporter.say(f"everything is in {run.run_dir}: summary.json, curves.png, metrics.jsonl, trajectories.jsonl, checkpoints")
    return summaries


def discard(run_dir: Path) -> None:
    """Delete a run folder. Raises UserError where the folder is something else."""
    if not run_dir.exists():
        return
    if any(run_dir.iterdir()) and not (run_dir / "config.json").exists():
        raise UserError(f"{run_dir} is no run folder, so --fresh leaves it alone: choose another with --run_dir=...")
    shutil.rmtree(run_dir)
