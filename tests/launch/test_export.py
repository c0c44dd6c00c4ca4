"""`agentrl_jax.launch.export`: the folder of a run's policy computes what the run's policy does."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax import models
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.launch.exporting import export_policy
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import FolderTokenizer, QwenBPETokenizer
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.training import loop
from agentrl_jax.training.builders import load_policy
from agentrl_jax.training.config import EnvironmentConfig, EvaluationConfig, Experiment, Phase
from agentrl_jax.training.pretraining import TextDocuments

SHAPE = DecoderConfig(
    layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8, qk_norm=True, max_positions=256
)


def train(run_dir: Path) -> None:
    """Two steps of adapters on text."""
    (text := run_dir.parent / "text.txt").write_text("one and one are two\n" * 60)
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-1), bin_length=40, microbatch=2)
    source = TextDocuments(str(text), batch=2, length=16)
    experiment = Experiment(
        name="export",
        environment=EnvironmentConfig("", workers=0),
        tokenizer=QwenBPETokenizer(300),
        policy=LoraConfig(SHAPE, rank=2),
        demonstrations=None,
        phases={"pretrain": Phase("text", source, cloning, steps=2)},
        evaluation=EvaluationConfig(episodes=0, players=()),
    )
    loop.train(experiment, run_dir, quiet=True)


def logits(policy, params, ids: list[int]):
    tokens = np.array([ids], np.int32)
    inputs = PolicyInputs(
        tokens=tokens, positions=np.arange(len(ids))[None], segment_ids=np.ones_like(tokens)
    )
    forward = jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs).hidden))
    return np.asarray(forward(params))


@pytest.mark.slow
def test_an_exported_folder_computes_the_same_logits(tmp_path: Path):
    train(tmp_path / "run")
    export_policy(tmp_path / "run", tmp_path / "out", dtype="float32")
    _, tokenizer, policy, params = load_policy(tmp_path / "run")
    again, loaded = models.load(tmp_path / "out")
    assert again.config.qk_norm and type(again) is type(policy.base)
    ids = tokenizer("one and two")["input_ids"]
    assert FolderTokenizer(str(tmp_path / "out"))(())("one and two")["input_ids"] == ids
    # The export merges over all devices; the logits are those of one.
    merged_params, base = (
        jax.tree.map(jnp.asarray, jax.device_get(x)) for x in (policy.merge(params), params["base"])
    )
    merged = logits(policy.base, merged_params, ids)
    np.testing.assert_array_equal(logits(again, loaded, ids), merged)
    assert np.abs(merged - logits(policy.base, base, ids)).max() > 1e-3
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == tokenizer.convert_tokens_to_ids("<|im_end|>")

    export_policy(tmp_path / "run", tmp_path / "half")
    _, half = models.load(tmp_path / "half")
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), loaded)
    jax.tree.map(np.testing.assert_array_equal, half, rounded)
    with pytest.raises(UserError, match="holds a model already"):
        export_policy(tmp_path / "run", tmp_path / "half")
    with pytest.raises(UserError, match="not in 'int3'"):
        export_policy(tmp_path / "run", tmp_path / "other", dtype="int3")
