"""Adapters against the `peft` library on torch: each reads the other's files, and merging gives the
same weights.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from random_models import make_model  # noqa: E402
from support.vision_folders import VISION_CASES, case_documents, packed_inputs  # noqa: E402
from torch_models import logits, open_model  # noqa: E402
from vision_models import logits as vision_logits  # noqa: E402
from vision_models import make_vision_model, open_vision_model  # noqa: E402

from agentrl_jax.models import load, save  # noqa: E402
from agentrl_jax.models.adapters import PROJECTIONS, LoraConfig, LoraPolicy  # noqa: E402
from agentrl_jax.models.decoder import Decoder  # noqa: E402
from agentrl_jax.models.hf.peft import load_adapters, save_adapters  # noqa: E402
from agentrl_jax.policy import Params, PolicyInputs  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)  # raised inside peft

SIZES: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 36,
    "intermediate_size": 40,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 51,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
BASES: dict[str, dict[str, Any]] = {
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "gemma2": {"model_type": "gemma2", "sliding_window": 5, "query_pre_attn_scalar": 12},
}
MODULES = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
}
TARGETS = {"two": ("query", "value"), "all": PROJECTIONS}


@dataclasses.dataclass
class Base:
    """The same model on both sides, and its folder."""

    folder: Path
    policy: Decoder
    params: Params


@pytest.fixture(scope="module", params=BASES)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tmp_path_factory.mktemp(request.param)
    make_model(SIZES | BASES[request.param]).save_pretrained(folder)
    return Base(folder, *load(folder))


def tokens() -> np.ndarray:
    return np.random.default_rng(3).integers(0, SIZES["vocab_size"], (2, 14), np.int32)


def our_logits(policy: LoraPolicy, params: Params) -> np.ndarray:
    positions = np.broadcast_to(np.arange(14, dtype=np.int32), (2, 14))
    inputs = PolicyInputs(
        tokens=tokens(), positions=positions, segment_ids=np.ones((2, 14), np.int32)
    )
    return np.asarray(
        jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs).hidden))(params)
    )


def random_adapters(policy: LoraPolicy) -> Any:
    random = np.random.default_rng(2)
    fresh = jax.eval_shape(policy.init_adapters, jax.random.key(0))
    return jax.tree.map(
        lambda x: jax.numpy.asarray(random.normal(0.0, 0.2, x.shape), x.dtype), fresh
    )


def check_merged(net: Any, policy: LoraPolicy, params: Params, folder: Path) -> None:
    """Merging and saving gives the weights and logits that merging in `peft` gives."""
    adapted, merged = our_logits(policy, params), net.merge_and_unload()
    save(folder, policy.base, policy.merge(params))
    again = open_model(folder)
    reloaded, its = again.state_dict(), merged.state_dict()
    assert list(reloaded) == list(its)
    for name, x in reloaded.items():
        np.testing.assert_allclose(x, its[name], atol=1e-6, rtol=0, err_msg=name)
    np.testing.assert_allclose(logits(again, tokens()), adapted, atol=2e-4, rtol=0)


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_peft_reads_our_adapters(base: Base, targets: tuple[str, ...], tmp_path: Path):
    policy = LoraPolicy(
        base.policy, LoraConfig(base.policy.config, rank=4, alpha=6.0, targets=targets)
    )
    adapters = random_adapters(policy)
    save_adapters(tmp_path / "ours", policy, adapters, str(base.folder))
    net = open_model(base.folder)
    plain = logits(net, tokens())
    net = peft.PeftModel.from_pretrained(net, tmp_path / "ours")
    params = {"base": base.params, "adapters": adapters}
    got = our_logits(policy, params)
    np.testing.assert_allclose(got, logits(net, tokens()), atol=2e-4, rtol=0)
    assert np.abs(got - plain).max() > 0.1
    check_merged(net, policy, params, tmp_path / "merged")


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_we_read_the_adapters_of_peft(base: Base, targets: tuple[str, ...], tmp_path: Path):
    torch.manual_seed(0)
    names = [MODULES[name] for name in targets]
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=3,
        lora_alpha=12,
        lora_dropout=0.1,
        target_modules=names,
        init_lora_weights=False,
    )
    net = open_model(base.folder)
    plain = logits(net, tokens())
    net = peft.get_peft_model(net, config).eval()
    net.save_pretrained(tmp_path / "its")
    policy, adapters = load_adapters(tmp_path / "its", base.policy)
    assert policy.config == LoraConfig(
        base.policy.config, rank=3, alpha=12.0, dropout=0.1, targets=targets
    )
    params = {"base": base.params, "adapters": adapters}
    got = our_logits(policy, params)
    np.testing.assert_allclose(got, logits(net, tokens()), atol=2e-4, rtol=0)
    assert np.abs(got - plain).max() > 0.1
    check_merged(net, policy, params, tmp_path / "merged")


# In each family: some of the decoder's matrices, all of the tower's that PEFT has a place for, and
# PEFT's expression for the same.
VISION_TARGETS: dict[str, tuple[tuple[str, ...], str]] = {
    "qwen2.5-vl": (
        ("query", "gate", "vision.qkv", "vision.out", "vision.gate", "vision.up", "vision.down"),
        r".*(q_proj|gate_proj|visual.*(qkv|attn\.proj|up_proj|down_proj|merger\.mlp\.[02]))",
    ),
    "qwen3-vl": (
        ("value", "down", "vision.qkv", "vision.out", "vision.up", "vision.down"),
        r".*(v_proj|down_proj|visual\..*(qkv|attn\.proj|linear_fc1|linear_fc2))",
    ),
    "gemma3": (
        ("query", "vision.query", "vision.key", "vision.value", "vision.out", "vision.up"),
        r".*(q_proj|vision_tower.*(k_proj|v_proj|out_proj|fc1))",
    ),
}


@pytest.fixture(params=VISION_TARGETS)
def vision_base(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Base]:
    torch.manual_seed(5)
    make_vision_model(VISION_CASES[request.param]).save_pretrained(tmp_path / "base")
    return request.param, Base(tmp_path / "base", *load(tmp_path / "base"))


def our_vision_logits(case: str, policy: LoraPolicy, params: Params) -> list[np.ndarray]:
    form = policy.image_format
    assert form is not None
    documents = case_documents(form, case)
    patches = sum(len(x.patches) for d in documents for x in d.images)
    inputs = packed_inputs(form, [documents], patches)
    out = jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs).hidden))(params)
    return np.split(np.asarray(out[0]), [len(documents[0].tokens)])


def check_vision_logits(
    case: str, net: Any, plain: Any, policy: LoraPolicy, params: Params
) -> None:
    """Both sides give the same logits, which are not those of the model without adapters."""
    form = policy.image_format
    assert form is not None
    documents = case_documents(form, case)
    with torch.no_grad():
        want, unadapted = (vision_logits(model, form, documents) for model in (net, plain))
    for x, y in zip(our_vision_logits(case, policy, params), want, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-4, rtol=0)
    assert np.abs(want[0] - unadapted[0]).max() > 1e-2


def test_peft_reads_our_adapters_of_a_model_that_sees(
    vision_base: tuple[str, Base], tmp_path: Path
):
    case, base = vision_base
    config = LoraConfig(base.policy.config, rank=4, alpha=6.0, targets=VISION_TARGETS[case][0])
    policy = LoraPolicy(base.policy, config)
    params = {"base": base.params, "adapters": random_adapters(policy)}
    save_adapters(tmp_path / "ours", policy, params["adapters"], str(base.folder))
    net = peft.PeftModel.from_pretrained(open_vision_model(base.folder), tmp_path / "ours")
    ours = {k for k in net.state_dict() if "lora_A" in k or "lora_B" in k}
    assert len(ours) == len(peft.get_peft_model_state_dict(net))
    check_vision_logits(case, net.base_model.model, open_vision_model(base.folder), policy, params)
    again, loaded = load_adapters(tmp_path / "ours", base.policy)
    assert set(again.config.targets) == set(config.targets)
    jax.tree.map(np.testing.assert_array_equal, loaded, params["adapters"])


def test_we_read_the_adapters_of_peft_of_a_model_that_sees(
    vision_base: tuple[str, Base], tmp_path: Path
):
    case, base = vision_base
    targets, expression = VISION_TARGETS[case]
    config = peft.LoraConfig(r=3, lora_alpha=12, target_modules=expression, init_lora_weights=False)
    net = peft.get_peft_model(open_vision_model(base.folder), config).eval()
    net.save_pretrained(tmp_path / "its")
    policy, adapters = load_adapters(tmp_path / "its", base.policy)
    assert set(policy.config.targets) == set(targets)
    params = {"base": base.params, "adapters": adapters}
    check_vision_logits(case, net.base_model.model, open_vision_model(base.folder), policy, params)
