"""A small run that anybody can learn in, with whatever source."""

import sys
from pathlib import Path
from typing import Any

from agentrl_jax import journal
from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.experiment import AgentConfig, EnvironmentConfig, EvaluationConfig, Experiment, Phase, Rollouts, Source
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.strategies import Independent
from agentrl_jax.streaming import Streaming

sys.path.insert(0, str(Path(__file__).parent))
PHASE = "RL"


def some_tokenizer(texts: Any) -> Any:
    return byte_tokenizer()


def rollouts(tasks: int = 3, group_size: int = 4) -> Rollouts:
    return Rollouts(tasks, Independent(group_size))


def streaming(staleness: int, tasks: int = 3, quiet: bool = False) -> Streaming:
    return Streaming(rollouts(tasks), staleness, quiet)


def small_run(source: Source, steps: int = 4, checkpoint_every: int = 100, **fields: Any) -> Experiment:
    """Letters from scratch, on one device, without demonstrations."""
    algorithm = grpo(optimizer=AdamWConfig(1e-2), bin_length=48, microbatch=8)
    filled: dict[str, Any] = {
        "environment": EnvironmentConfig("letters:tests/Letters-v0", workers=0),
        "engine": EngineConfig(rows=32, positions=48, chunk=4, burst=3, patience=0.01),
        "record_groups": 100,
    }
    return Experiment(
        name="letters",
        agent=AgentConfig(budget=3),
        tokenizer=some_tokenizer,
        policy=DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8),
        demonstrations=None,
        rl=Phase(PHASE, source, algorithm, steps=steps, checkpoint_every=checkpoint_every),
        evaluation=EvaluationConfig(episodes=2, players=()),
        mesh=MeshConfig(data=1),
        **filled | fields,
    )


def metrics_of(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what depends on the clock."""
    return [{name: x for name, x in line.items() if not name.startswith("time/")} for _, line in journal.lines_of(run_dir / "metrics.jsonl")]
