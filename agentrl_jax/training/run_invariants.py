"""`RunInvariants`: the invariants of a phase's steps, and what follows where one does not hold."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from agentrl_jax.errors import UserError
from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.policy import Params
from agentrl_jax.rollout import call_records, episode_records
from agentrl_jax.training.config import Phase
from agentrl_jax.training.engine_weights import EngineWeights
from agentrl_jax.training.nonfinite_updates import save_groups
from agentrl_jax.training.run import Run
from agentrl_jax.trajectories import Group

Reaction = Literal["stop", "warn"]  # to an invariant that does not hold
MAX_DROPPED = 0.5  # the fraction of a process's episodes that may be dropped
MIN_EPISODES = 64  # over at least so many, counted from the last check on


class Violation(NamedTuple):
    """An invariant that does not hold, as processes exchange it."""

    step: int
    name: str
    detail: str


class RunInvariants:
    """Checks the invariants of one phase; those of batches are checked by its algorithm.

    The processes of a run exchange their violations, and stop together.
    """

    def __init__(self, run: Run, name: str, phase: Phase, reaction: Reaction) -> None:
        self._run, self._name, self._phase, self._reaction = run, name, phase, reaction
        self._invariants = run.runtime.invariants
        self._invariants.enabled = True
        self._invariants.take_violations()  # of playing between phases
        agents = phase.trained_agents if phase.source.on_policy else ()
        policies = {agent: run.models[agent].policy for agent in agents}
        self._weights = EngineWeights(policies, run.mesh, run.experiment.engine.dtype)
        self.violations: list[Violation] = []  # of this process, since the last exchange
        self._deferred: dict[int, Sequence[Callable[[], InvariantCheck]]] = {}  # by step
        self._seconds = self._invariants.seconds
        self._groups: dict[int, Sequence[Group]] = {}  # of the steps with violations
        self._reported: set[str] = set()
        self._dropped = self._episodes = 0

    def publish(self, agent: str, params: Params, version: int) -> None:
        """Remember weights that an engine was given."""
        if self._invariants.enabled:
            with self._invariants.timed():
                self._weights.publish(agent, params, version)

    def finish(self) -> None:
        """Check nothing more: the phase is over."""
        self._invariants.enabled = False

    def check_groups(
        self,
        step: int,
        groups: Sequence[Group],
        trained_groups: Sequence[Group],
        max_staleness: int,
    ) -> None:
        """Check the experience of a step before the algorithm gets it.

        Args:
            step: of the phase.
            groups: of this process.
            trained_groups: the same with the trajectories of trained agents alone.
            max_staleness: see `ExperienceIterator`.
        """
        check = self._invariants.check
        if not self._invariants.enabled:
            return
        self._check_demonstration(step, groups)
        if not self._phase.source.on_policy:
            return
        check(episode_records.recorded_calls, groups)
        check(episode_records.recorded_ends, groups)
        check(episode_records.distinct_episodes, groups)
        check(call_records.placed_calls, groups)
        check(call_records.recorded_rewards, groups)
        self._check_action(step, groups)
        for agent in self._phase.trained_agents:
            newest = self._run.runtime.published_versions[agent]
            oldest = min(newest, step - max_staleness)
            check(episode_records.weight_versions, trained_groups, oldest, newest)
        self._check_dropped(groups)
        with self._invariants.timed():
            self._weights.defer_checks(self._run.runtime)

    def _check_demonstration(self, step: int, groups: Sequence[Group]) -> None:
        """One turn of each step, since tokenizing all of them again takes long."""
        demonstrations = episode_records.demonstrations_of(groups)
        if demonstrations:
            phase = self._phase
            agent = self._run.models[
                phase.trained_agents[0] if phase.trained_agents else phase.agent
            ]
            self._invariants.check(
                episode_records.demonstrated_tokens,
                demonstrations[step % len(demonstrations)],
                step // len(demonstrations),
                agent.agent,
            )

    def _check_action(self, step: int, groups: Sequence[Group]) -> None:
        """One turn of each step, since parsing all of them again takes long."""
        trajectories = [t for group in groups for t in group.trajectories]
        models, index = self._run.models, step // max(len(trajectories), 1)
        if not trajectories:
            return
        trajectory = trajectories[step % len(trajectories)]
        if trajectory.agent in models and call_records.has_sampled_action(trajectory, index):
            agent = models[trajectory.agent].agent
            self._invariants.check(call_records.recorded_actions, trajectory, index, agent)

    def _check_dropped(self, groups: Sequence[Group]) -> None:
        dropped = sum(group.num_dropped for group in groups)
        self._dropped += dropped
        self._episodes += dropped + sum(len(group.trajectories) for group in groups)
        if self._episodes >= MIN_EPISODES:
            self._invariants.check(
                episode_records.dropped_episodes, self._dropped, self._episodes, MAX_DROPPED
            )
            self._dropped = self._episodes = 0

    def end_step(self, step: int, groups: Sequence[Group]) -> None:
        """Note what a step violated, and its checks of what is still on the device."""
        self._take_violations(step, groups)
        self._deferred[step] = self._invariants.take_deferred()

    def explain(self, step: int, groups: Sequence[Group]) -> None:
        """After an error: stop with the invariant of which it may be a consequence, if there is
        one.
        """
        self.end_step(step, groups)
        self.react(self.violations)

    def make_deferred_checks(self, step: int, groups: Sequence[Group]) -> None:
        """Make the checks of a step that waited for the device."""
        for check in self._deferred.pop(step, ()):
            self._invariants.check(check)
        self._take_violations(step, groups)

    def _take_violations(self, step: int, groups: Sequence[Group]) -> None:
        checks = self._invariants.take_violations()
        if checks:
            self._groups[step] = groups
        self.violations += [Violation(step, check.name, check.detail) for check in checks]

    def take_seconds(self) -> float:
        """Seconds spent on checks since the last call."""
        seconds, self._seconds = self._invariants.seconds - self._seconds, self._invariants.seconds
        return seconds

    def exchange(self) -> None:
        """Gather the violations of all processes, and stop or warn."""
        parts = self._run.process_group.all_gather("invariants", self.violations)
        self.react([values for part in parts for values in part])

    def react(self, violations: Sequence[Sequence[Any]]) -> dict[str, float]:
        """Stop or warn; all processes call this with the violations of all.

        Returns:
            A metric with their number, if there are any.

        Raises:
            UserError: there is one, and the run is to stop.
        """
        everything = [Violation(*values) for values in violations]
        self.violations = []
        groups, self._groups = self._groups, {}
        if not everything:
            return {}
        if self._reaction == "stop":
            first = min(everything, key=lambda violation: violation.step)
            raise self._error(first, groups.get(first.step, ()))
        for violation in everything:
            if violation.name not in self._reported:
                self._reported.add(violation.name)
                self._run.reporter.warn(
                    f"{self._sentence(violation)} (more of this kind are only counted)"
                )
        return {"invariants/violated": float(len(everything))}

    def _sentence(self, violation: Violation) -> str:
        return (
            f"the invariant {violation.name} does not hold in step {violation.step} of "
            f"{self._name}: {violation.detail}"
        )

    def _error(self, violation: Violation, groups: Sequence[Group]) -> UserError:
        run = self._run
        path = save_groups(
            run.run_dir,
            self._name,
            violation.step,
            groups,
            run.process_group.index,
            folder="violations",
        )
        return UserError(
            f"{self._sentence(violation)}; no weights are saved since then, and the step's "
            f"experience is in {path}: look up the invariant in docs/invariants.md, or go on "
            "regardless with --invariants=warn"
        )
