"""Shared by the experiments on searching (docs/search.md): the task, and a short fine-tuning of the
base model on demonstrations, then a method.
"""

from collections.abc import Mapping
from typing import Any

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.strategies.episode_examples import EpisodeExamples
from agentrl_jax.configs.fine_tuned_base import base_model_experiment
from agentrl_jax.context import ContextManager
from agentrl_jax.envs.search.protocols import PROTOCOLS
from agentrl_jax.envs.search.reader import ReaderExamples
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.shipped import BASE_MODEL
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Source,
)
from agentrl_jax.training.model_configs import FrozenPolicy
from agentrl_jax.training.sources import Demonstrations, Rollouts
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource

NAME = "agentrl_jax.envs:agentrl/SearchQuestions-v0"
PROPOSALS = "agentrl_jax.envs:agentrl/SearchProposals-v0"
PAGES = 500  # facts alone, without fillers
EASY_FACTS = ["birthplace", "employer", "seat", "waterway", "settled", "opened"]
VOCABULARY = 4014  # tokens of the base model
MAX_LENGTH = 768  # tokens of an episode; a search shows about 110
TRAINING_SETTINGS: dict[str, Any] = {
    "optimizer": AdamWConfig(2e-4, warmup_steps=3),
    "minibatches": 2,
    "microbatch": 1,
    "bin_length": MAX_LENGTH,
}


def reader_phase(
    spec: EnvironmentSpec, smoke: bool, noise: int = 0, max_length: int = MAX_LENGTH
) -> Phase:
    """Trains the weights of a frozen reader: it answers from what the searches of scripted policies
    showed, and judges those plans.

    Args:
        spec: the environment of the scripted policies, that of the experiment.
        smoke: two short steps.
        noise: further pages that may stand among what it reads.
        max_length: tokens of what it reads.
    """
    plans = Rollouts(2 if smoke else 8, ScriptedEpisodes("mixture"), spec)
    examples = EpisodeExamples(ReaderExamples(PAGES, noise=noise, fillers=0), plans)
    imitate = BehaviorCloningConfig(
        optimizer=AdamWConfig(1e-3, warmup_steps=10, final_fraction=0.1),
        bin_length=max_length,
        microbatch=4,
    )
    return Phase("reader", examples, imitate, 2 if smoke else 160)


def frozen_reader() -> FrozenPolicy:
    """The reader as a named model, which answers greedily."""
    return FrozenPolicy("reader", agent=AgentConfig(ChatFormat(), budget=24, top_k=1))


def search_spec(**options: Any) -> EnvironmentSpec:
    """Questions of one or two hops on 500 pages; a search shows one."""
    easy = {"pages": PAGES, "fillers": 0, "facts": EASY_FACTS, "hops": [1, 2], "kinds": ["chain"]}
    return EnvironmentSpec(
        NAME, {**easy, "horizon": 4, "instruction": False, "top_k": 1, **options}
    )


def proposal_spec() -> EnvironmentSpec:
    """Answers for which a question of one or two hops is to be asked, on the same pages."""
    options = search_spec().options
    return EnvironmentSpec(PROPOSALS, {k: v for k, v in options.items() if k != "kinds"})


def search_experiment(
    name: str,
    algorithm: AlgorithmConfig,
    source: Source,
    smoke: bool,
    options: Mapping[str, Any] | None = None,
    context: ContextManager | None = None,
    max_length: int = MAX_LENGTH,
    player: str = "hasty",
    model: str = BASE_MODEL,
) -> Experiment:
    """Fine-tuning on a scripted policy, then the method; evaluated on held-out pages, in phrasings
    of the training and in others.

    Args:
        name: of the run.
        algorithm, source: of the method's phase.
        smoke: two short steps of each phase.
        options: of the environment.
        context: what the agent reads of its history; None: all of it.
        max_length: tokens of a context.
        player: whose episodes are demonstrated, all of `hasty` and the successful ones of any
            other.
        model: which model that ships is trained.
    """
    spec = search_spec(**(options or {}))
    protocol = PROTOCOLS[spec.options.get("protocol", "search_r1")]
    held_out: dict[str, TaskSource] = {
        split: search_spec(**{**spec.options, "split": split}) for split in ("pages", "test")
    }
    render = ChatFormat(tool_format=protocol.tool_format)
    limits = Limits(turns=2 if smoke else 0)
    agent = AgentConfig(render, context=context, budget=96, limits=limits)
    experiment = base_model_experiment(
        name,
        spec,
        agent,
        DemonstrationConfig(player, episodes=16 if smoke else 2560),
        EvaluationConfig(2 if smoke else 64, players=("random",), environments=held_out),
        (8, 2 if smoke else 320),
        (algorithm, source, 2 if smoke else 12),
        EngineConfig(
            rows=32, positions=max_length, prefill_chunk=32, min_decode_steps=8, batching_delay=0.1
        ),
        model,
    )
    experiment.phases["sft"].source = Demonstrations(8, successful_only=player != "hasty")
    return experiment
