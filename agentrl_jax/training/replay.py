"""Which calls of a run's trajectory log can be sampled again, and the weights for that."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentrl_jax.learner.checkpoint_digests import saved_steps
from agentrl_jax.policy import Params, Policy
from agentrl_jax.training.agent_models import params_after
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.phase_checkpoint import load_model_params, params_part
from agentrl_jax.trajectories import Call
from agentrl_jax.trajectory_record import TrajectoryRecord


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A call of a trajectory log, and where it is."""

    call: Call
    step: int
    task: str
    sample: int
    agent: str
    turn: int


@dataclass
class CallSelection:
    """The calls of an agent in a phase: those to sample again, and why others are left out."""

    limit: int  # of the calls that are sampled again with the weights of a version
    # By version of the weights.
    replayed: dict[int, list[RecordedCall]] = field(default_factory=dict)
    recorded: int = 0  # calls that were sampled
    replayable: int = 0  # of these, those that can be sampled again
    without_weights: dict[int, int] = field(default_factory=dict)  # by step of the checkpoint
    of_several_versions: int = 0  # new weights came while they were sampled
    empty: int = 0  # without a token, and so without a version

    def add(self, recorded: RecordedCall, versions: Sequence[int]) -> None:
        """Count a call that was sampled; `versions` are those whose weights can be loaded."""
        of_call = {int(version) for version in recorded.call.version}
        self.recorded += 1
        if len(of_call) != 1:
            self.empty += not of_call
            self.of_several_versions += bool(of_call)
            return
        (version,) = of_call
        if version not in versions:
            self.without_weights[version] = self.without_weights.get(version, 0) + 1
        else:
            self.replayable += 1
            calls = self.replayed.setdefault(version, [])
            if len(calls) < self.limit:
                calls.append(recorded)


def select_calls(
    records: Iterable[TrajectoryRecord],
    phase: str,
    agents: Sequence[str],
    versions: Sequence[int],
    limit: int,
) -> CallSelection:
    """The calls of a trajectory log that can be sampled again.

    Args:
        records: of the log.
        phase: whose calls.
        agents: whose calls; all play with the same weights.
        versions: of the weights that can be loaded.
        limit: the most calls of a version.
    """
    selection = CallSelection(limit)
    for record in records:
        trajectory = record.trajectory
        if record.phase != phase or trajectory.agent not in agents:
            continue
        for i, turn in enumerate(trajectory.turns):
            for call in turn.calls:
                if call.source == "sampled":
                    where = (record.step, trajectory.task, trajectory.sample, trajectory.agent, i)
                    selection.add(RecordedCall(call, *where), versions)
    return selection


def agents_with_weights_of(experiment: Experiment, agent: str) -> list[str]:
    """The agent, and those that share its weights."""
    configs = experiment.agent_configs.items()
    return [name for name, config in configs if (config.shares or name) == agent]


@dataclass(frozen=True)
class PhaseWeights:
    """The weights that an agent had while a phase trained it, as far as they can be loaded.

    Version v is the checkpoint of step v. Version 0 is what the phase started with, and has no
    checkpoint of its own: the weights after the phases before it, or the initial ones.
    """

    experiment: Experiment
    run_dir: Path
    phase: str
    agent: str

    @property
    def _folder(self) -> Path:
        return self.run_dir / "checkpoints" / self.phase

    @property
    def _earlier_phases(self) -> list[str]:
        names = list(self.experiment.phases)
        return names[: names.index(self.phase)]

    def versions(self) -> list[int]:
        """The versions whose weights can be loaded."""
        saved = sorted(step for step, _ in saved_steps(self._folder))
        return [0, *saved] if self._has_start() else saved

    def _has_start(self) -> bool:
        """Whether the phase went on from weights that can be loaded, and not from computed ones."""
        phases = self.experiment.phases
        trained = [n for n in self._earlier_phases if self.agent in phases[n].trained_agents]
        is_saved = not trained or bool(saved_steps(self.run_dir / "checkpoints" / trained[-1]))
        return phases[self.phase].start == "" and is_saved

    def load(self, version: int, policy: Policy) -> Params:
        """The weights of a version, on the engine's devices; UserError where their checkpoint is
        damaged.
        """
        mesh = self.experiment.engine.devices()
        if version == 0:
            earlier = self._earlier_phases
            return params_after(self.experiment, self.run_dir, earlier, self.agent, policy, mesh)
        part = params_part(self.experiment.phases[self.phase], self.agent)
        return load_model_params(self._folder, policy, mesh, part, step=version)
