"""`Run`: the objects of an experiment, built in its run folder."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.engine import Engine
from agentrl_jax.errors import UserError
from agentrl_jax.learner.program_meter import PROGRAM_METER
from agentrl_jax.policy import Params
from agentrl_jax.reporting.reporter import open_reporter
from agentrl_jax.reporting.tracker import Tracker
from agentrl_jax.reporting.tracker_thread import open_trackers
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes
from agentrl_jax.storage import config_json, demonstration_file
from agentrl_jax.storage.damaged_lines import Reaction
from agentrl_jax.storage.dataset_folder import FIRST_ENV_SEED
from agentrl_jax.storage.digests import file_damage, keep_digest
from agentrl_jax.storage.files import remove_unfinished
from agentrl_jax.storage.folder_lock import FolderLock, exclusive_lock
from agentrl_jax.storage.run_folder import code_changes, empty_run_dir
from agentrl_jax.training import demonstrations
from agentrl_jax.training.agent_models import add_agents, initial_models
from agentrl_jax.training.algorithm import PerAgent
from agentrl_jax.training.builders import (
    make_learner_mesh,
    make_runtime,
)
from agentrl_jax.training.config import Experiment, Phase, RunContext
from agentrl_jax.training.config_checks import check_config
from agentrl_jax.training.evaluation import evaluation_strategy, flatten
from agentrl_jax.training.evaluations import Evaluations
from agentrl_jax.training.flops_utilization import start_meter
from agentrl_jax.training.model_configs import ModelContext, open_models
from agentrl_jax.training.phase_checkpoint import load_phase_params, phase_checkpoint
from agentrl_jax.training.run_environments import make_environments
from agentrl_jax.training.run_status import live_status
from agentrl_jax.training.run_tokenizer import ensure_tokenizer
from agentrl_jax.training.tracking import run_status, tracked_run


class Run:
    """Builds what an experiment names, in its run folder, and reuses what the folder holds already.

    The processes of a run share the folder; the coordinator creates the files in it.
    """

    def __init__(
        self,
        experiment: Experiment,
        run_dir: Path,
        quiet: bool = False,
        process_group: ProcessGroup | None = None,
        fresh: bool = False,
        trackers: Sequence[Tracker] = (),
        damaged_records: Reaction = "stop",
    ) -> None:
        """Check the config, and build everything up to the engine.

        Args:
            experiment: to run.
            run_dir: is created, or must be of the same experiment.
            quiet: print warnings and the evaluation table alone.
            process_group: of the run; None: this process alone.
            fresh: delete what the folder holds.
            trackers: follow the run, beside its folder; of the coordinator.
            damaged_records: what follows where lines of earlier steps are damaged or missing.

        Raises:
            UserError: the config is wrong, or the folder belongs to another config or another
                process has its lock.
        """
        self.experiment, self.run_dir = experiment, run_dir
        self.process_group = process_group or ProcessGroup()
        self.environments = make_environments(experiment)  # fails early where a name is wrong
        check_config(experiment, self.environments)
        self.lock: FolderLock | None = None  # of the coordinator
        self._lock_stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._bind_run_dir(stack, fresh)
            self._open(quiet, trackers, damaged_records)
            self._lock_stack = stack.pop_all()

    def _open(self, quiet: bool, trackers: Sequence[Tracker], damaged_records: Reaction) -> None:
        """The reporter and the runtime, and all that is built with them."""
        experiment, run_dir = self.experiment, self.run_dir
        max_bytes, process = experiment.record_mib * 2**20, self.process_group.index
        self.reporter = open_reporter(run_dir, quiet, process, max_bytes, damaged_records)
        if changes := code_changes(run_dir):
            self.reporter.log(
                f"{run_dir} was made with other code ({'; '.join(changes)}): the numbers may differ"
            )
        if self.process_group.is_coordinator:
            self.reporter.trackers = open_trackers(
                trackers, tracked_run(experiment, run_dir), self.reporter.warn
            )
        self.exit_stack = contextlib.ExitStack()  # for what a phase's source opens
        self.best_checkpoints: dict[str, dict[str, Any]] = {}  # for the summary, by phase
        self.runtime = make_runtime(
            experiment.environment,
            log=self.reporter.warn,
            process_group=self.process_group,
            loop=experiment.clock.make_loop() if experiment.clock else None,
        )
        self.evaluations = Evaluations(
            experiment, run_dir / "evaluations", self.runtime, self.reporter.log
        )
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _bind_run_dir(self, stack: contextlib.ExitStack, fresh: bool) -> None:
        """Lock the folder, until the stack is closed, and make it that of the config."""
        with self.process_group.coordinator_first("the run folder"):
            is_coordinator = self.process_group.is_coordinator
            if is_coordinator:
                self.lock = stack.enter_context(exclusive_lock(self.run_dir, "training"))
                if fresh:
                    empty_run_dir(self.run_dir)
                remove_unfinished(self.run_dir)
            if not is_coordinator and not (self.run_dir / config_json.CONFIG_FILE).exists():
                raise UserError(
                    f"{self.run_dir} is not there for process {self.process_group.index}: "
                    "name a folder that all processes share"
                )
            config_json.bind_run_dir(self.run_dir, self.experiment)

    def _build(self) -> None:
        """Demonstrations, tokenizer, mesh, agents with their models and engines, in this order."""
        experiment = self.experiment
        with self.process_group.coordinator_first("demonstrations"):
            self.demonstrations = self._ensure_demonstrations()
            self.tokenizer = ensure_tokenizer(experiment, self.run_dir, self.demonstrations)
        self.mesh = make_learner_mesh(experiment, experiment.policy.build(len(self.tokenizer)))
        self.dense_peak = start_meter(self.mesh, self.reporter.log)
        context = self.environments.context
        self.models = initial_models(experiment, self.tokenizer, context, self.mesh)
        self.agent, self.policy = self.models["policy"].agent, self.models["policy"].policy
        self.params = self.models["policy"].params
        add_agents(
            self.runtime, experiment, self.models, self.tokenizer, context, self._wrap_engine
        )
        params = {name: model.params for name, model in self.models.items()}
        open_models(
            ModelContext(experiment, self.run_dir, self.runtime, self.tokenizer, context, params)
        )
        # Those of named models follow the weights of every phase.
        self._num_run_callbacks = len(self.runtime.publish_callbacks)
        self.reporter.status = lambda: live_status(self.runtime, self.reporter)

    def _wrap_engine(self, engine: Engine) -> Engine:
        clock = self.experiment.clock
        return clock.wrap_engine(engine, self.runtime.run) if clock else engine

    def _ensure_demonstrations(self) -> Path | None:
        """The demonstrations; scripted episodes are written to a file where there is none."""
        config = self.experiment.demonstrations
        if config is None:
            return None
        if config.path:
            demonstrations.open_source(Path(config.path))
            return Path(config.path)
        path = self.run_dir / "demonstrations.array_record"
        if damage := file_damage(path):
            raise UserError(
                f"the demonstrations {path} are damaged ({damage}): restore the file from a copy, "
                "or start over with --fresh"
            )
        if not path.exists():
            self.reporter.log(
                f"writing {config.episodes:,} demonstrations of the policy {config.player!r}"
            )
            default = self.experiment.environment
            source = config.task_source or default
            tasks = source.fixed_tasks(config.episodes, FIRST_ENV_SEED, default)
            groups = self.runtime.collect(
                ScriptedEpisodes(config.player),
                tasks,
                (self.experiment.seed, -1),
                process_group=ProcessGroup(),
            )
            trajectories = flatten([group.trajectories for group in groups])
            demonstration_file.write(path, map(demonstration_file.encode, trajectories))
            keep_digest(path)
            returns = demonstrations.total_rewards(trajectories)
            self.reporter.log(
                f"demonstrations: mean return {returns.mean():.2f}, std {returns.std():.2f}"
            )
        return path

    def start_params(self, phase: Phase, newest: Mapping[str, Params]) -> Params:
        """The weights with which a phase starts, by agent where it trains several; `newest` are
        the newest of each agent.
        """
        if isinstance(phase.algorithm, PerAgent):
            return {a: self._start_params(phase, a, newest[a]) for a in phase.trained_agents}
        return self._start_params(phase, phase.agent, newest[phase.agent])

    def _start_params(self, phase: Phase, agent: str, newest: Params) -> Params:
        policy = self.models[agent].policy

        def load(name: str) -> Params:
            other = self.experiment.phases[name].source_agent(agent)
            assert other is not None, "checked with the config"
            return load_phase_params(
                self.experiment, self.run_dir, name, other, policy, self.mesh, self.process_group
            )

        if isinstance(phase.start, str):
            return load(phase.start) if phase.start else newest
        return phase.start.params(load)

    def begin_phase(self, name: str) -> RunContext:
        """Mark the agents that the phase trains, and return what its source may use."""
        phase, agents = self.experiment.phases[name], self.runtime.agents
        trained = phase.trained_agents or tuple(self.models)
        for agent in self.experiment.agent_configs:
            is_trained = agents[agent].engine in trained
            agents[agent] = dataclasses.replace(agents[agent], trainable=is_trained)
        model = self.models[phase.trained_agents[0] if phase.trained_agents else phase.agent]
        return RunContext(
            experiment=self.experiment,
            run_dir=self.run_dir,
            phase=name,
            runtime=self.runtime,
            agent=model.agent,
            policy=model.policy,
            params=model.params,
            tokenizer=self.tokenizer,
            mesh=self.mesh,
            demonstrations=self.demonstrations,
            warn=self.reporter.warn,
            read_trajectories=self.reporter.recorder.read,
            exit_stack=self.exit_stack,
        )

    @property
    def agent_names(self) -> list[str]:
        """All agents, where there are several."""
        return list(self.experiment.agent_configs) if self.experiment.agents else []

    def end_phase(self) -> None:
        """Close what the phase's source opened, and let it follow no more weights."""
        self.exit_stack.close()
        del self.runtime.publish_callbacks[self._num_run_callbacks :]

    def evaluate_phase(self, name: str, weights: Mapping[str, Params]) -> None:
        """Evaluate the agents that a phase trained, with their weights."""
        for label, agent in self.experiment.phases[name].rows().items():
            strategy = None
            if not self.evaluations.is_complete(label):
                policy, params = self.models[agent].policy, weights[agent]
                step = phase_checkpoint(self.experiment, self.run_dir, name, self.process_group)
                strategy = evaluation_strategy(
                    self.experiment, self.run_dir, name, policy, params, self.process_group, step
                ) or IndependentEpisodes(1, agent)
            self.evaluations.play(label, strategy=strategy)

    def close(self) -> None:
        """Stop the engine and the workers, and close all files."""
        PROGRAM_METER.stop()
        self.runtime.close()
        self.exit_stack.close()
        self.reporter.close()
        self.environments.close()
        self._lock_stack.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.reporter.trackers.finish(run_status(kind))
        self.close()
