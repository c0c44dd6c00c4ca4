"""Multi-turn reinforcement learning of language-model agents in JAX.

The names below are the public face of the library; they are imported when they are first used, so
that environment workers, which never need JAX, start without it. What is not named here or in
`agentrl_jax.models`, `agentrl_jax.algorithms.methods` and `agentrl_jax.envs` may change.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # transformers advises to get torch

__version__ = "0.1.0"

if TYPE_CHECKING:
    from agentrl_jax.capture.strategy import CapturedEpisodes
    from agentrl_jax.context import ContextManager, FullHistory, LastMessages
    from agentrl_jax.distributed.sharding import MeshConfig
    from agentrl_jax.engine import Engine
    from agentrl_jax.environment import Environment, make
    from agentrl_jax.errors import UserError
    from agentrl_jax.inference.engine_config import EngineConfig
    from agentrl_jax.inference.local_engine import LocalEngine
    from agentrl_jax.inference.remote_engine import RemoteEngine
    from agentrl_jax.learner.learner import Learner
    from agentrl_jax.learner.learning_rate import LearningRate
    from agentrl_jax.learner.optimizer import AdamWConfig, OptaxConfig, StochasticRounding
    from agentrl_jax.learner.packing import Batch, pack
    from agentrl_jax.learner.parameter_groups import ParameterGroup, ParameterGroups
    from agentrl_jax.learner.sequences import collate
    from agentrl_jax.learner.train_state import TrainState
    from agentrl_jax.messages import Message, assistant, user
    from agentrl_jax.models import load, save
    from agentrl_jax.multi_agent import MultiAgentEnvironment
    from agentrl_jax.policy import Policy
    from agentrl_jax.pytree import pytree_dataclass
    from agentrl_jax.renderer import ChatFormat, ChatRenderer, Renderer, TextRenderer
    from agentrl_jax.rollout.agent import Agent, Limits
    from agentrl_jax.rollout.runtime import Runtime, Strategy
    from agentrl_jax.rollout.strategy import IndependentEpisodes, RolloutPiece
    from agentrl_jax.tool_environment import ToolEnvironment
    from agentrl_jax.tools import Tool, tool
    from agentrl_jax.training.algorithm import Algorithm, PerAgent, Unchanged
    from agentrl_jax.training.async_rollouts import AsyncRollouts
    from agentrl_jax.training.config import (
        AgentConfig,
        DemonstrationConfig,
        EnvironmentConfig,
        EvaluationConfig,
        Experiment,
        Phase,
    )
    from agentrl_jax.training.loop import train
    from agentrl_jax.training.mixture import Mixture
    from agentrl_jax.training.preferences import Preferences
    from agentrl_jax.training.pretraining import TextDocuments
    from agentrl_jax.training.rejection_sampling import RejectionSampling
    from agentrl_jax.training.sources import (
        Demonstrations,
        MixedSource,
        NoExperience,
        Rollouts,
    )
    from agentrl_jax.training.task_file import TaskFile
    from agentrl_jax.training.task_set import TaskSet
    from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource
    from agentrl_jax.trajectories import Call, Group, Sampling, Trajectory, Turn
    from agentrl_jax.workers.pool import InlinePool, Task, WorkerPool
    from agentrl_jax.workers.process_pool import ProcessPool
    from agentrl_jax.workers.thread_pool import ThreadPool

_MODULES = {
    "AdamWConfig": "agentrl_jax.learner.optimizer",
    "Agent": "agentrl_jax.rollout.agent",
    "AgentConfig": "agentrl_jax.training.config",
    "Algorithm": "agentrl_jax.training.algorithm",
    "AsyncRollouts": "agentrl_jax.training.async_rollouts",
    "Batch": "agentrl_jax.learner.packing",
    "Call": "agentrl_jax.trajectories",
    "CapturedEpisodes": "agentrl_jax.capture.strategy",
    "ChatFormat": "agentrl_jax.renderer",
    "ChatRenderer": "agentrl_jax.renderer",
    "ContextManager": "agentrl_jax.context",
    "DemonstrationConfig": "agentrl_jax.training.config",
    "Demonstrations": "agentrl_jax.training.sources",
    "Engine": "agentrl_jax.engine",
    "EngineConfig": "agentrl_jax.inference.engine_config",
    "Environment": "agentrl_jax.environment",
    "EnvironmentConfig": "agentrl_jax.training.config",
    "EnvironmentSpec": "agentrl_jax.training.task_source",
    "EvaluationConfig": "agentrl_jax.training.config",
    "Experiment": "agentrl_jax.training.config",
    "FullHistory": "agentrl_jax.context",
    "Group": "agentrl_jax.trajectories",
    "IndependentEpisodes": "agentrl_jax.rollout.strategy",
    "InlinePool": "agentrl_jax.workers.pool",
    "LastMessages": "agentrl_jax.context",
    "Learner": "agentrl_jax.learner.learner",
    "LearningRate": "agentrl_jax.learner.learning_rate",
    "Limits": "agentrl_jax.rollout.agent",
    "LocalEngine": "agentrl_jax.inference.local_engine",
    "MeshConfig": "agentrl_jax.distributed.sharding",
    "Message": "agentrl_jax.messages",
    "MixedSource": "agentrl_jax.training.sources",
    "Mixture": "agentrl_jax.training.mixture",
    "MultiAgentEnvironment": "agentrl_jax.multi_agent",
    "NoExperience": "agentrl_jax.training.sources",
    "OptaxConfig": "agentrl_jax.learner.optimizer",
    "ParameterGroup": "agentrl_jax.learner.parameter_groups",
    "ParameterGroups": "agentrl_jax.learner.parameter_groups",
    "PerAgent": "agentrl_jax.training.algorithm",
    "Phase": "agentrl_jax.training.config",
    "Policy": "agentrl_jax.policy",
    "Preferences": "agentrl_jax.training.preferences",
    "ProcessPool": "agentrl_jax.workers.process_pool",
    "RejectionSampling": "agentrl_jax.training.rejection_sampling",
    "RemoteEngine": "agentrl_jax.inference.remote_engine",
    "Renderer": "agentrl_jax.renderer",
    "RolloutPiece": "agentrl_jax.rollout.strategy",
    "Rollouts": "agentrl_jax.training.sources",
    "Runtime": "agentrl_jax.rollout.runtime",
    "Sampling": "agentrl_jax.trajectories",
    "StochasticRounding": "agentrl_jax.learner.optimizer",
    "Strategy": "agentrl_jax.rollout.runtime",
    "Task": "agentrl_jax.workers.pool",
    "TaskFile": "agentrl_jax.training.task_file",
    "TaskSet": "agentrl_jax.training.task_set",
    "TaskSource": "agentrl_jax.training.task_source",
    "TextDocuments": "agentrl_jax.training.pretraining",
    "TextRenderer": "agentrl_jax.renderer",
    "ThreadPool": "agentrl_jax.workers.thread_pool",
    "Tool": "agentrl_jax.tools",
    "ToolEnvironment": "agentrl_jax.tool_environment",
    "TrainState": "agentrl_jax.learner.train_state",
    "Trajectory": "agentrl_jax.trajectories",
    "Turn": "agentrl_jax.trajectories",
    "Unchanged": "agentrl_jax.training.algorithm",
    "UserError": "agentrl_jax.errors",
    "WorkerPool": "agentrl_jax.workers.pool",
    "assistant": "agentrl_jax.messages",
    "collate": "agentrl_jax.learner.sequences",
    "load": "agentrl_jax.models",
    "make": "agentrl_jax.environment",
    "pack": "agentrl_jax.learner.packing",
    "pytree_dataclass": "agentrl_jax.pytree",
    "save": "agentrl_jax.models",
    "tool": "agentrl_jax.tools",
    "train": "agentrl_jax.training.loop",
    "user": "agentrl_jax.messages",
}

__all__ = [*_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
