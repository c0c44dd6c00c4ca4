"""A whole run on a pretrained model's folder: adapters are trained, the base is not, and the run's
policy can be loaded and played.
"""

from pathlib import Path

import jax
import numpy as np
import pytest

from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models import load, save
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.tokenizers import FolderTokenizer, byte_tokenizer
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training import loop
from agentrl_jax.training.builders import load_policy
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.sources import Demonstrations, Rollouts


def make_folder(folder: Path) -> Path:
    """A small model with a chat template and an embedding with more rows than the tokenizer has
    tokens.
    """
    config = DecoderConfig(
        layers=2,
        width=16,
        hidden=32,
        heads=4,
        kv_heads=2,
        head_size=8,
        qk_norm=True,
        max_positions=256,
    )
    policy, tokenizer = config.build(272), byte_tokenizer(chat=True)
    save(folder, policy, policy.init(jax.random.key(3)))
    tokenizer.save_pretrained(folder)
    return folder


def experiment(folder: Path) -> Experiment:
    adam = AdamWConfig(1e-2)
    return Experiment(
        name="letters",
        environment=EnvironmentConfig("support.letter_task:tests/Letters-v0", workers=0),
        agent=AgentConfig(ChatRenderer, budget=4),
        tokenizer=FolderTokenizer(str(folder)),
        policy=LoraConfig(
            PretrainedDecoder(str(folder)), rank=2, dropout=0.1, targets=("query", "value", "down")
        ),
        demonstrations=DemonstrationConfig("random", episodes=8),
        phases={
            "sft": Phase(
                "SFT",
                Demonstrations(4),
                BehaviorCloningConfig(optimizer=adam, bin_length=224, microbatch=4),
                steps=2,
            ),
            "rl": Phase(
                "GRPO",
                Rollouts(2, IndependentEpisodes(4)),
                grpo(optimizer=adam, bin_length=224, microbatch=4, regularizers={"kl": KL(0.01)}),
                steps=2,
            ),
        },
        evaluation=EvaluationConfig(episodes=4, players=("random",)),
        engine=EngineConfig(
            rows=8, positions=224, prefill_chunk=32, min_decode_steps=4, batching_delay=0.1
        ),
        mesh=MeshConfig(data=2, fsdp=2, tensor=2),
    )


@pytest.mark.slow
def test_only_the_adapters_of_a_folders_model_are_trained(tmp_path: Path):
    folder = make_folder(tmp_path / "model")
    loop.train(experiment(folder), tmp_path / "run", quiet=True)
    _, base = load(folder)
    _, tokenizer, policy, params = load_policy(tmp_path / "run")
    assert policy.vocab_size == 272 and len(tokenizer) < 272
    jax.tree.map(np.testing.assert_array_equal, base, params["base"])
    changed = [
        float(np.abs(x).max())
        for path, x in jax.tree.leaves_with_path(params["adapters"])
        if "up" in str(path[-1])
    ]
    assert len(changed) == 3 and min(changed) > 1e-3
    save(tmp_path / "merged", policy.base, policy.merge(params))
    again, merged = load(tmp_path / "merged")
    jax.tree.map(np.testing.assert_array_equal, merged, policy.merge(params))
    assert {path.name for path in (tmp_path / "merged").iterdir()} >= {
        "tokenizer.json",
        "chat_template.jinja",
        "config.json",
    }
    assert again.config.qk_norm


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="holds no tokenizer"):
        FolderTokenizer(str(tmp_path))(())
