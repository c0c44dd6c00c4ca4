"""A model's folder through the whole of a run: adapters are trained, the base is not, and the run's policy plays."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from agentrl_jax import loop
from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.algorithms.terms import KL
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import (
    AgentConfig,
    DemonstrationConfig,
    Demonstrations,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Rollouts,
)
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.models import load, save
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.pretrained import Pretrained
from agentrl_jax.models.tokenizers import FolderTokenizer, byte_tokenizer
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.rendering import ChatRenderer
from agentrl_jax.run import load_policy
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.strategies import Independent

sys.path.insert(0, str(Path(__file__).parent.parent))


def make_folder(folder: Path) -> Path:
    """A small model with a chat template and more rows in its embedding than the tokenizer has tokens."""
    config = DecoderConfig(layers=2, width=16, hidden=32, heads=4, kv_heads=2, head_size=8, qk_norm=True, max_positions=256)
    policy, tokenizer = config.build(272), byte_tokenizer(chat=True)
    save(folder, policy, policy.init(jax.random.key(3)))
    tokenizer.save_pretrained(folder)
    return folder


def experiment(folder: Path) -> Experiment:
    adam = AdamWConfig(1e-2)
    return Experiment(
        name="letters",
        environment=EnvironmentConfig("letters:tests/Letters-v0", workers=0),
        agent=AgentConfig(ChatRenderer, budget=4),
        tokenizer=FolderTokenizer(str(folder)),
        policy=LoraConfig(Pretrained(str(folder)), rank=2, dropout=0.1, targets=("query", "value", "down")),
        demonstrations=DemonstrationConfig("random", episodes=8),
        sft=Phase("SFT", Demonstrations(4), SupervisedConfig(optimizer=adam, bin_length=224, microbatch=4), steps=2),
        rl=Phase(
            "GRPO", Rollouts(2, Independent(4)), grpo(optimizer=adam, bin_length=224, microbatch=4, regularisers={"kl": KL(0.01)}), steps=2
        ),
        evaluation=EvaluationConfig(episodes=4, players=("random",)),
        engine=EngineConfig(rows=8, positions=224, chunk=32, burst=4, patience=0.1),
        mesh=MeshConfig(data=2, fsdp=2, tensor=2),
    )


@pytest.mark.slow
def test_adapters_of_a_folders_model_are_trained_and_nothing_else(tmp_path: Path):
    folder = make_folder(tmp_path / "model")
    loop.train(experiment(folder), tmp_path / "run", quiet=True)
    _, base = load(folder)
    _, tokenizer, policy, params = load_policy(tmp_path / "run")
    assert policy.vocab_size == 272 and len(tokenizer) < 272
    jax.tree.map(np.testing.assert_array_equal, base, params["base"])
    changed = [float(np.abs(x).max()) for path, x in jax.tree.leaves_with_path(params["adapters"]) if "up" in str(path[-1])]
    assert len(changed) == 3 and min(changed) > 1e-3
    save(tmp_path / "merged", policy.base, policy.merge(params))
    again, merged = load(tmp_path / "merged")
    jax.tree.map(np.testing.assert_array_equal, merged, policy.merge(params))
    assert {path.name for path in (tmp_path / "merged").iterdir()} >= {"tokenizer.json", "chat_template.jinja", "config.json"}
    assert again.config.qk_norm


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path):
    with pytest.raises(UserError, match="holds no tokenizer"):
        FolderTokenizer(str(tmp_path))(())
