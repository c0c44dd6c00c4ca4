"""Models that see against `transformers` on torch, on randomly drawn configs and images:
VISION_CONFIGS=20 tests 20 of each family.
"""

import dataclasses
import os
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.vision_decoding import continue_greedily  # noqa: E402
from support.vision_folders import (  # noqa: E402
    TEXT,
    TOWER,
    VISION_CASES,
    Document,
    make_document,
    packed_inputs,
)
from vision_models import (  # noqa: E402
    generated,
    logits,
    loss_and_gradients,
    make_vision_model,
    open_vision_model,
)

from agentrl_jax.image_format import ImageFormat  # noqa: E402
from agentrl_jax.models import load, save  # noqa: E402
from agentrl_jax.models.hf.parameter_trees import tensors_to_save  # noqa: E402
from agentrl_jax.models.hf.policy_tensors import tensor_layouts  # noqa: E402
from agentrl_jax.models.vision.policy import VisionLanguageModel  # noqa: E402

COUNT = int(os.environ.get("VISION_CONFIGS", "2"))  # configs of each family
WRITTEN = 24


def draw(case: str, number: int) -> dict[str, Any]:
    """A config.json, determined by the family and the number."""
    rng = np.random.default_rng([zlib.crc32(case.encode()), number])
    heads, size = int(rng.choice([2, 4])), 4 * int(rng.integers(2, 6))
    config = VISION_CASES[case]
    half = int(rng.choice([8, 12]))
    h, w = sorted(int(x) for x in rng.integers(1, half // 3 + 1, 2))
    rope = {"rope_type": "default", "rope_theta": float(10 ** rng.uniform(2, 6))}
    width = 2 * half * 4
    text = config["text_config"] | TEXT
    text |= {"num_hidden_layers": int(rng.integers(3, 5)), "hidden_size": width}
    text |= {"intermediate_size": int(rng.integers(20, 80)), "vocab_size": 48}
    vision = config["vision_config"] | {"hidden_size": heads * size}
    vision |= {"intermediate_size": int(rng.integers(20, 70))}
    tied = {"tie_word_embeddings": bool(rng.random() < 0.5)}
    if case == "gemma3":
        text |= {"head_dim": 2 * half, "sliding_window": int(rng.integers(3, 30))}
        text |= {"layer_types": ["sliding_attention", *config["text_config"]["layer_types"]]}
        text["layer_types"] = text["layer_types"][: text["num_hidden_layers"]]
        vision |= {"num_attention_heads": heads, "num_hidden_layers": int(rng.integers(1, 4))}
        side, pooled = int(rng.choice([2, 3, 4])), int(rng.choice([1, 2, 3]))
        vision |= {"image_size": 4 * side * pooled}
        return config | tied | {
            "text_config": text | tied, "vision_config": vision, "mm_tokens_per_image": side**2
        }  # fmt: skip
    text["rope_parameters"] = rope | {"mrope_section": [half - h - w, h, w]}
    vision |= {"num_heads": heads, "depth": 5, "out_hidden_size": width}
    layers = sorted(int(x) for x in rng.choice(5, int(rng.integers(1, 4)), replace=False))
    if case == "qwen2.5-vl":
        vision |= {"fullatt_block_indexes": layers, "window_size": int(rng.choice([8, 16, 24]))}
        vision |= {"tokens_per_second": int(rng.integers(1, 4))}
    else:
        text |= {"head_dim": 2 * half}
        text["rope_parameters"] |= {"mrope_interleaved": True}
        vision |= {"deepstack_visual_indexes": layers}
        vision |= {"num_position_embeddings": int(rng.integers(2, 8)) ** 2}
    return config | tied | {"text_config": text, "vision_config": TOWER | vision}


@dataclasses.dataclass
class Pair:
    """The same model on both sides, and documents with images for it."""

    case: str
    net: Any
    policy: VisionLanguageModel
    params: Any
    documents: list[Document]


@pytest.fixture(
    scope="module", params=[f"{case}/{number}" for case in VISION_CASES for number in range(COUNT)]
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case, number = request.param.split("/")
    net, folder = make_vision_model(draw(case, int(number))), tmp_path_factory.mktemp("model")
    generator = torch.Generator().manual_seed(int(number))
    with torch.no_grad():
        for name, weight in net.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 1:
                offset = case == "gemma3" and "vision_tower" not in name
                is_scale = ("norm" in name or "ln_q" in name) and "bias" not in name
                weight.copy_(0.3 * noise + (0.9 if is_scale and not offset else 0.0))
            else:
                weight.copy_(1.2 * (weight.numel() / len(weight)) ** -0.5 * noise)
    net.eval().save_pretrained(folder)
    policy, params = load(folder)
    assert isinstance(policy, VisionLanguageModel)
    form, rng = policy.image_format, np.random.default_rng(int(number))
    if form.fixed_side:
        first, second = ([(1, form.fixed_side, form.fixed_side)] * n for n in (3, 1))
    else:
        first, second = (
            [(int(t), *(2 * int(x) for x in rng.integers(1, 8, 2))) for t in frames]
            for frames in ((1, 1, 1), (2, 1, 3))
        )
    apart = case == "qwen3-vl"
    documents = [make_document(form, first, 1, apart), make_document(form, second, 2, apart)]
    return Pair(case, net, policy, params, documents)


def row_length(form: ImageFormat, documents: list[Document]) -> int:
    """Patches of a row for the documents' images, with some padding."""
    patches = sum(len(x.patches) for d in documents for x in d.images)
    return (patches // form.patches_per_token + 5) * form.patches_per_token


def test_logits_packed_and_padded_equal_those_of_transformers(pair: Pair):
    policy, (first, second) = pair.policy, pair.documents
    long, short = len(first.tokens), len(second.tokens)
    form = policy.image_format
    rows = [[5, first, second], [second, 2, first, 3]]
    inputs = packed_inputs(form, rows, row_length(form, pair.documents))
    got = jax.jit(lambda params, x: policy.logits(params, policy.apply(params, x).hidden))(
        pair.params, inputs
    )
    with torch.no_grad():
        want = logits(pair.net, form, pair.documents)
    for row, first_at, second_at in ((0, 5, 5 + long), (1, short + 2, 0)):
        part = got[row, first_at : first_at + long]
        np.testing.assert_allclose(part, want[0], atol=1e-4, rtol=0)
        part = got[row, second_at : second_at + short]
        np.testing.assert_allclose(part, want[1], atol=1e-4, rtol=0)
    assert want[0].std() > 0.1


def test_decoding_with_a_cache_writes_what_transformers_generates(pair: Pair):
    policy, document = pair.policy, pair.documents[0]
    form = policy.image_format
    patches = row_length(form, [document])
    got, written = continue_greedily(policy, pair.params, document, WRITTEN, patches)
    with torch.no_grad():
        want = logits(pair.net, form, [document])[0]
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)
    np.testing.assert_array_equal(written, generated(pair.net, form, document, WRITTEN))


def test_gradients_of_every_weight_equal_those_of_torch(pair: Pair):
    policy, documents = pair.policy, pair.documents
    form = policy.image_format
    inputs = packed_inputs(form, [documents], row_length(form, documents))

    def loss(params: Any) -> Any:
        logits = policy.logits(params, policy.apply(params, inputs).hidden)[0]
        parts = jnp.split(logits, [len(documents[0].tokens)])
        return sum(jnp.mean(part**2) for part in parts)

    value, gradient = jax.jit(jax.value_and_grad(loss))(pair.params)
    want_value, want = loss_and_gradients(pair.net, form, documents)
    np.testing.assert_allclose(value, want_value, rtol=1e-5)
    got = tensors_to_save(tensor_layouts(policy.config, set(want)), gradient)
    assert set(got) == set(want)
    for name, x in want.items():
        # a key's bias does not change the softmax: its gradient is rounding error
        scale = max(np.abs(x).max(), 1e-3)
        np.testing.assert_allclose(got[name].to_host(), x, atol=5e-4 * scale, err_msg=name)


def test_transformers_reads_a_saved_model_as_the_same_model(pair: Pair, tmp_path: Path):
    save(tmp_path / "it", pair.policy, pair.params)
    again = open_vision_model(tmp_path / "it")
    original, its = pair.net.state_dict(), again.state_dict()
    assert list(original) == list(its)
    assert all(torch.equal(original[name], its[name]) for name in original)
    save(tmp_path / "ours", dataclasses.replace(pair.policy, origin=None), pair.params)
    ours, form = open_vision_model(tmp_path / "ours"), pair.policy.image_format
    with torch.no_grad():
        got, want = (logits(net, form, pair.documents) for net in (ours, pair.net))
    for part, expected in zip(got, want):
        np.testing.assert_allclose(part, expected, atol=1e-5, rtol=0)
