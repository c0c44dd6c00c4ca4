"""Phases train on files alone, without an environment."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.chat_records import FULL_RECORD, canonical_line
from support.small_runs import logged_metrics

from agentrl_jax.algorithms.contexts.history_views import LastImages
from agentrl_jax.algorithms.methods import dpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.formats.exports import ChatExport, write_chats
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import ByteTokenizer, byte_tokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.demonstrations import DemonstrationIterator
from agentrl_jax.training.loop import train
from agentrl_jax.training.preferences import Preferences
from agentrl_jax.training.run import Run
from agentrl_jax.training.sources import Demonstrations, Rollouts
from agentrl_jax.trajectories import Sampling

NOTHING = EvaluationConfig(episodes=0, players=())
CLONE = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)


def experiment(phases: dict[str, Phase], **fields: Any) -> Experiment:
    defaults: dict[str, Any] = {"demonstrations": None, "evaluation": NOTHING}
    return Experiment(
        name="files",
        environment=EnvironmentConfig(name="", workers=0),
        agent=AgentConfig(budget=8),
        tokenizer=ByteTokenizer(),
        policy=DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8),
        phases=phases,
        engine=EngineConfig(rows=4, positions=32, prefill_chunk=4),
        **defaults | fields,
    )


def test_the_calls_of_a_file_show_tools_calls_and_placeholders_of_images(tmp_path: Path):
    lines = [canonical_line(FULL_RECORD)] * 2
    (tmp_path / "chats.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    renderer = ChatFormat(tools_as_text=True)(byte_tokenizer(chat=True))
    agent = Agent("policy", renderer, LastImages(0, "[image]"), Sampling(budget=400))
    (group, _) = DemonstrationIterator(tmp_path / "chats.jsonl", agent, 2, 0).next(0)
    (trajectory,) = group.trajectories
    prompt, action = (
        renderer.codec.decode(tuple(ids.tolist()))
        for ids in (trajectory.calls[0].prompt, trajectory.calls[0].action)
    )
    assert "The population of a city." in prompt and "How many live here?[image]" in prompt
    assert prompt.index("Hello.") < prompt.index("How many")  # it is observed, not learned
    for call in trajectory.turns[0].action.tool_calls:
        assert call.arguments in action and call.name in action
    assert trajectory.calls[1].parent is trajectory.calls[0]  # one training sequence
    write_chats(tmp_path / "again.jsonl", [ChatExport(trajectory)] * 2)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "chats.jsonl").read_bytes()


@pytest.mark.slow
def test_fine_tuning_and_dpo_on_files_learn_what_is_preferred(tmp_path: Path):
    chats, pairs = tmp_path / "chats.jsonl", tmp_path / "pairs.jsonl"
    questions = [f"{i}?\n" for i in range(8)]
    chat = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": text}]}
        for q in questions
        for text in ("yes", "no")
    ]
    chats.write_text("\n".join(map(json.dumps, chat)))
    pair = [{"prompt": q, "chosen": "yes", "rejected": "no"} for q in questions]
    pairs.write_text("\n".join(map(json.dumps, pair)))
    method = dpo(0.5, optimizer=AdamWConfig(3e-3), bin_length=32, microbatch=8)
    phases = {
        "sft": Phase("SFT", Demonstrations(batch=8), CLONE, steps=10),
        "dpo": Phase("DPO", Preferences(str(pairs), batch=8), method, steps=12),
    }
    config = experiment(phases, demonstrations=DemonstrationConfig(path=str(chats)))
    assert [row.episodes for row in train(config, tmp_path / "run", quiet=True)] == [0, 0]
    metrics = logged_metrics(tmp_path / "run")
    losses = [x["loss"] for x in metrics if x["phase"] == "sft"]
    assert losses[-1] < 0.7 * losses[0]
    steps = [x for x in metrics if x["phase"] == "dpo"]
    assert np.isclose(steps[0]["agreement"], 0.5) and steps[-1]["agreement"] == 1.0
    assert steps[-1]["loss"] < 0.6 * steps[0]["loss"] and steps[-1]["pairs"] == 8.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"evaluation": EvaluationConfig()}, "nothing can be evaluated: set config.evaluation"),
        ({"evaluation": EvaluationConfig(0)}, "nothing can be evaluated: set config.evaluation"),
        ({"demonstrations": DemonstrationConfig()}, "nobody can write demonstrations: name a file"),
    ],
)
def test_what_needs_an_environment_is_reported_at_the_start(
    tmp_path: Path, fields: dict[str, Any], message: str
):
    phase = Phase("SFT", Demonstrations(batch=8), CLONE, steps=1)
    with pytest.raises(UserError, match=message):
        Run(experiment({"sft": phase}, **fields), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_rollouts_without_an_environment_are_reported(tmp_path: Path):
    phase = Phase("RL", Rollouts(tasks=2), CLONE, steps=1)
    with pytest.raises(UserError, match="the experiment has no environment to play in"):
        train(experiment({"rl": phase}), tmp_path / "run", quiet=True)
