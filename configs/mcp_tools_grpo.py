"""GRPO (arXiv 2402.03300) on questions whose calculator is a tool of an MCP server.

The task is that of `tools_grpo.py`; the calculation goes to a server that is started with the
environment's worker process and speaks the Model Context Protocol over stdio
(docs/tool_servers.md). With `--config.environment.options.url=http://127.0.0.1:8000/mcp` it goes to
one that runs elsewhere. `:smoke` fine-tunes and trains for a few steps, to see that all parts meet.

Hardware: 2 CPU cores; time: 5 minutes on one of them; score: success .97, SFT .56 (seed 0)

    pip install 'agentrl_jax[mcp]'
    agentrl-train --config=configs/mcp_tools_grpo.py[:smoke]
"""

import dataclasses

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.configs.small import pick, rollouts, small_experiment, training_settings
from agentrl_jax.configs.tools_grpo import PRICE_LIST
from agentrl_jax.models.tokenizers import BPETokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.training.config import AgentConfig, DemonstrationConfig, Experiment

TASK = dataclasses.replace(PRICE_LIST, environment="RemotePriceList-v0")


def get_config(variant: str = "method") -> Experiment:
    is_smoke = pick(variant, "mcp_tools_grpo", method=False, smoke=True)
    task = dataclasses.replace(TASK, sft_steps=20) if is_smoke else TASK
    config = small_experiment(
        "mcp-tools-grpo-smoke" if is_smoke else "mcp-tools-grpo",
        task,
        grpo(**training_settings(task)),
        source=rollouts(tasks=4, group_size=4) if is_smoke else None,
        steps=3 if is_smoke else 30,
        label="GRPO",
    )
    config.agent = AgentConfig(ChatFormat(), budget=task.budget)
    config.tokenizer = BPETokenizer(
        vocab_size=640, chat=True, merge_across_spaces=True, split_digits=True
    )
    config.environment.workers = 1
    if is_smoke:
        config.demonstrations = DemonstrationConfig(task.player, episodes=64)
        config.evaluation.episodes = 16
    return config
