"""Named models of a config: a frozen policy, the current one, a pretrained model, an endpoint."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from agentrl_jax.call_checksum import CallChecksum, no_checksum
from agentrl_jax.context import ContextManager
from agentrl_jax.errors import UserError
from agentrl_jax.inference.batch_scorer import BatchScorer, continuation_logp
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.engine_pool import make_engine
from agentrl_jax.inference.lazy_engine import LazyEngine
from agentrl_jax.inference.remote_config import RemoteEngineConfig
from agentrl_jax.inference.remote_engine import RemoteEngine, RemoteScorer
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.named_models import Model
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage import config_json
from agentrl_jax.training.agent_models import initial_params
from agentrl_jax.training.builders import (
    agent_of_config,
    agent_policy_config,
    find_checkpoint,
    load_tokenizer,
)
from agentrl_jax.training.config import AgentConfig, Experiment, PolicyConfig
from agentrl_jax.training.phase_checkpoint import load_phase_params

Tokenizer = Callable[[Sequence[str]], Any]  # as `Experiment.tokenizer`


@dataclass(frozen=True)
class ModelContext:
    """What a named model may use of the run that opens it."""

    experiment: Experiment
    run_dir: Path
    runtime: Runtime
    tokenizer: Any
    context: ContextManager  # the environment's
    params: Mapping[str, Params]  # the present weights of each agent that has some of its own


def open_models(run: ModelContext) -> None:
    """Add the models of the experiment to its runtime."""
    clock = run.experiment.clock
    for name, config in run.experiment.models.items():
        if name in run.runtime.agents:
            raise UserError(f"config.models: {name!r} is an agent already, take another name")
        model = config.open(name, run)
        run.runtime.add_model(name, clock.wrap_model(model, run.runtime.run) if clock else model)


def _frozen_agent(config: AgentConfig, tokenizer: Any, context: ContextManager, name: str) -> Agent:
    """An agent that no phase trains."""
    agent = agent_of_config(config, tokenizer, context, name, f"config.models.{name}.agent")
    return dataclasses.replace(agent, trainable=False)


def local_model(
    agent: Agent,
    policy: Policy,
    load: Callable[[], Params],
    engine: EngineConfig,
    tokenizer: Any,
    rows: int,
    checksum: CallChecksum = no_checksum,
) -> Model:
    """A model on this process's devices, which plays, answers and scores.

    Args:
        agent: names it.
        policy: the model.
        load: returns its weights; called at the first call and at the first score.
        engine: sizes and devices.
        tokenizer: of the model.
        rows: texts that are scored at once.
        checksum: of its calls, see `make_engine`.
    """
    return Model(
        agent,
        LazyEngine(lambda: make_engine(policy, engine, load(), tokenizer.decode, checksum), engine),
        BatchScorer(continuation_logp(policy), policy.axes(), load, engine, rows),
    )


@dataclass
class FrozenPolicy:
    """An agent's policy in a phase's newest checkpoint, of this run or another."""

    phase: str = ""  # empty: the initial policy of this run, or the newest phase of `run_dir`
    run_dir: str = ""  # of another run; empty: this run
    policy: str = "policy"  # the agent whose weights they are
    agent: AgentConfig | None = None  # how it acts; None: as that agent
    engine: EngineConfig | None = None  # None: that of its run
    rows: int = 32  # texts that are scored at once

    def open(self, name: str, run: ModelContext) -> Model:
        """Raises UserError where there is no such run, agent or phase."""
        experiment, tokenizer, folder = run.experiment, run.tokenizer, run.run_dir
        if self.run_dir:
            folder = Path(self.run_dir)
            experiment = config_json.load_config(folder)
            tokenizer = load_tokenizer(folder / "tokenizer")
        phases = [
            key for key, phase in experiment.phases.items() if self.policy in phase.trained_agents
        ]
        if self.phase and self.phase not in phases:
            raise UserError(
                f"config.models.{name}: the phases that train {self.policy!r} are "
                f"{', '.join(phases) or 'none'}, and not {self.phase!r}"
            )
        policy = agent_policy_config(experiment, self.policy).build(len(tokenizer))
        engine = self.engine or experiment.engine

        def load() -> Params:
            if not self.phase and not self.run_dir:
                return initial_params(experiment, engine.devices(), self.policy, policy)
            phase, _ = find_checkpoint(experiment, folder, self.phase or None, self.policy)
            mesh = engine.devices()
            return load_phase_params(experiment, folder, phase, self.policy, policy, mesh)

        config = self.agent or experiment.agent_configs[self.policy]
        agent = _frozen_agent(config, tokenizer, run.context, name)
        checksum = run.runtime.invariants.call_checksum
        return local_model(agent, policy, load, engine, tokenizer, self.rows, checksum)


@dataclass
class CurrentPolicy:
    """Scores by the newest published weights of an agent, which writes under its own name."""

    policy: str = "policy"  # the agent
    rows: int = 32  # texts that are scored at once

    def open(self, name: str, run: ModelContext) -> Model:
        """See `ModelConfig.open`."""
        policy = agent_policy_config(run.experiment, self.policy).build(len(run.tokenizer))
        scorer = BatchScorer(
            continuation_logp(policy),
            policy.axes(),
            lambda: run.params[self.policy],
            run.experiment.engine,
            self.rows,
        )

        def on_publish(params: Params, version: int, engine: str) -> None:
            if engine == self.policy:
                scorer.set_weights(params)

        run.runtime.publish_callbacks.append(on_publish)
        return Model(run.runtime.agents[self.policy], scorer=scorer)


@dataclass
class PretrainedModel:
    """A model with weights and a tokenizer of its own, such as those of a Hugging Face folder:
    `PretrainedModel(PretrainedDecoder(folder), FolderTokenizer(folder))`.
    """

    policy: PolicyConfig
    tokenizer: Tokenizer
    agent: AgentConfig = field(default_factory=AgentConfig)
    engine: EngineConfig | None = None  # None: that of the experiment
    rows: int = 32  # texts that are scored at once

    def open(self, name: str, run: ModelContext) -> Model:
        """Raises UserError where the tokenizer or the model is missing."""
        tokenizer, engine = self.tokenizer(()), self.engine or run.experiment.engine
        policy = self.policy.build(len(tokenizer))
        agent = _frozen_agent(self.agent, tokenizer, run.context, name)

        def load() -> Params:
            return self.policy.initial_params(policy, jax.random.key(0), engine.devices())

        checksum = run.runtime.invariants.call_checksum
        return local_model(agent, policy, load, engine, tokenizer, self.rows, checksum)


@dataclass
class Endpoint:
    """A model behind a server with OpenAI's completions of token ids (docs/endpoint.md)."""

    server: RemoteEngineConfig
    tokenizer: Tokenizer | None = None  # of the served model; None: the experiment's
    agent: AgentConfig = field(default_factory=AgentConfig)

    def open(self, name: str, run: ModelContext) -> Model:
        """Raises UserError where the server's config is wrong or its key is missing."""
        tokenizer = self.tokenizer(()) if self.tokenizer else run.tokenizer
        agent = _frozen_agent(self.agent, tokenizer, run.context, name)
        checksum = run.runtime.invariants.call_checksum
        engine = RemoteEngine(self.server, detokenize=tokenizer.decode, checksum=checksum)
        return Model(agent, engine, RemoteScorer(engine))
