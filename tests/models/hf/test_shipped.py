"""The model that comes with the package: it loads anywhere, has learned, and can be adapted."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from agentrl_jax import models
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.corpus.corpus import held_out_exercises
from agentrl_jax.corpus.domains import DOMAINS
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.errors import UserError
from agentrl_jax.images.prompts import IMAGE, VIDEO
from agentrl_jax.launch.exporting import with_image_tokens
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.hf.folder import read_decoder, resolve_folder
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import (
    BASE_MODEL,
    READING_MODEL,
    ROOM_BASE_MODEL,
    SHIPPED_MODELS,
    TURNED_BASE_MODEL,
    VIDEO_BASE_MODEL,
    VISION_BASE_MODEL,
)
from agentrl_jax.models.tokenizers import END_OF_TEXT, FolderTokenizer
from agentrl_jax.models.vision.policy import VisionLanguageModel
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.pretraining import DocumentEncoder, text_trajectory
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import InlinePool

MOST_LOSS = 1.5  # nats per token; random weights have about log(2600) = 7.9


@pytest.fixture(scope="module")
def documents() -> list[np.ndarray]:
    """Two held-out documents of each quick domain, as ids."""
    encode = DocumentEncoder(FolderTokenizer(BASE_MODEL)(()), END_OF_TEXT)
    names = ("arithmetic", "questions", "python", "sql")
    assert set(names) < set(DOMAINS)
    return [encode(x.document) for name in names for x in held_out_exercises(name, 2)]


def nats_per_token(policy, params, documents: list[np.ndarray], first: int = 1) -> float:
    """Of the tokens from `first` on, by the logits of all documents in one batch."""
    longest = max(map(len, documents))
    tokens = np.stack([np.pad(ids, (0, longest - len(ids))) for ids in documents])
    segments = np.stack([np.arange(longest) < len(ids) for ids in documents]).astype(np.int32)
    inputs = PolicyInputs(
        tokens=tokens,
        positions=np.arange(longest)[None].repeat(len(tokens), 0),
        segment_ids=segments,
    )
    forward = jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs).hidden))
    logits = forward(params)
    logp = np.asarray(jax.nn.log_softmax(logits[:, :-1], axis=-1))
    chosen = np.take_along_axis(logp, tokens[:, 1:, None], axis=-1)[..., 0]
    return -float(chosen[:, first - 1 :][segments[:, first:] > 0].mean())


def test_the_loss_on_held_out_documents_is_far_below_that_of_random_weights(documents):
    policy, params = models.load(BASE_MODEL)
    assert 4e6 < sum(x.size for x in jax.tree.leaves(params)) < 8e6
    assert nats_per_token(policy, params, documents) < MOST_LOSS
    random = policy.init(jax.random.key(0))
    assert nats_per_token(policy, random, documents) > 3 * MOST_LOSS


def test_the_model_that_reads_copies_what_it_has_never_seen():
    lines = np.random.default_rng(0).integers(0, 3900, (8, 30))
    texts = [np.tile(line, 2) for line in lines]
    policy, params = models.load(READING_MODEL)
    assert nats_per_token(policy, params, [*lines]) > 7
    assert nats_per_token(policy, params, texts, first=31) < 2
    assert nats_per_token(*models.load(BASE_MODEL), texts, first=31) > 6


def test_the_folder_is_found_from_any_working_directory(tmp_path: Path):
    code = (
        "from agentrl_jax.models.hf.folder import read_decoder\n"
        "from agentrl_jax.models.tokenizers import FolderTokenizer\n"
        f"print(read_decoder({BASE_MODEL!r}).vocab_size, len(FolderTokenizer({BASE_MODEL!r})(())))"
    )
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["4014", "4014"]


@pytest.mark.parametrize("name", SHIPPED_MODELS)
def test_the_folder_is_small_and_complete(name: str):
    folder = resolve_folder(name)
    assert folder == SHIPPED_MODELS[name]
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert set(sizes) == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(sizes.values()) < 20e6


@pytest.mark.parametrize(
    "name", [VISION_BASE_MODEL, VIDEO_BASE_MODEL, TURNED_BASE_MODEL, ROOM_BASE_MODEL]
)
def test_the_models_that_see_know_their_placeholders(name: str):
    policy, tokenizer = read_decoder(name), FolderTokenizer(name)(())
    assert isinstance(policy, VisionLanguageModel)
    ids = tokenizer.convert_tokens_to_ids([IMAGE, VIDEO])
    assert ids == [policy.config.image_token_id, policy.config.video_token_id]
    assert len(tokenizer) <= policy.vocab_size


def test_an_exported_model_has_the_placeholders_of_its_tokenizer_where_it_named_none():
    policy, tokenizer = read_decoder(VISION_BASE_MODEL), FolderTokenizer(VISION_BASE_MODEL)(())
    assert isinstance(policy, VisionLanguageModel)
    unnamed = replace(policy, config=replace(policy.config, image_token_id=-1, video_token_id=7))
    named = with_image_tokens(unnamed, tokenizer)
    assert isinstance(named, VisionLanguageModel) and named.origin == policy.origin
    assert named.config.image_token_id == policy.config.image_token_id
    assert named.config.video_token_id == 7  # its own


def test_a_name_that_does_not_ship_is_no_folder():
    with pytest.raises(UserError, match="there is no folder"):
        resolve_folder("./agentrl/base-4m")


def test_adapters_on_it_take_a_step(documents):
    config = LoraConfig(PretrainedDecoder(BASE_MODEL), rank=2, targets=("query", "down"))
    mesh = make_mesh(MeshConfig(data=-1))
    policy = config.build(4014)
    params = config.initial_params(policy, jax.random.key(0), mesh)
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=256, microbatch=8)
    algorithm = cloning.build(policy, mesh, 1)
    groups = [Group("text", (text_trajectory(ids),)) for ids in documents[:2]]
    with Runtime({}, {}, InlinePool(), process_group=ProcessGroup()) as runtime:
        state, _ = algorithm.step(algorithm.init(jax.random.key(1), params), groups, runtime)
    up = jax.tree.map(lambda x: float(np.abs(x).max()), state.params["adapters"])
    assert all(leaf > 0 for leaf in jax.tree.leaves(up))
    _, weights = models.load(BASE_MODEL)
    jax.tree.map(np.testing.assert_array_equal, weights, state.params["base"])
