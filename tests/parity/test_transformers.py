"""Every family against `transformers` on torch, on randomly drawn configs: PARITY_CONFIGS=50 tests
50 of each family.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from random_models import FAMILIES, draw, make_model  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402
from torch_models import generated, logits, open_model  # noqa: E402

from agentrl_jax.models import load, save  # noqa: E402
from agentrl_jax.models.decoder import Decoder  # noqa: E402
from agentrl_jax.policy import Params, PolicyInputs  # noqa: E402

COUNT = int(os.environ.get("PARITY_CONFIGS", "2"))  # configs of each family
LONG, SHORT, ROW, CHUNK, WRITTEN = 24, 17, 48, 8, 64


@dataclasses.dataclass
class Pair:
    """The same model on both sides, and the folder that `transformers` wrote."""

    config: dict[str, Any]
    net: Any
    policy: Decoder
    params: Params
    several: str | int  # largest size of a file in that folder, in bytes

    @property
    def documents(self) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(7)
        return tuple(
            random.integers(0, self.policy.vocab_size, size, np.int32) for size in (LONG, SHORT)
        )  # type: ignore[return-value]

    @property
    def left_padded(self) -> tuple[np.ndarray, np.ndarray]:
        """Both documents as rows, and which of their tokens are real: the inputs of torch
        models.
        """
        tokens, mask = np.zeros((2, LONG), np.int32), np.zeros((2, LONG), np.int32)
        for row, document in enumerate(self.documents):
            tokens[row, -len(document) :], mask[row, -len(document) :] = document, 1
        return tokens, mask


@pytest.fixture(
    scope="module", params=[f"{family}/{number}" for family in FAMILIES for number in range(COUNT)]
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    family, number = request.param.split("/")
    config, several = draw(family, int(number)), "20KB" if int(number) % 2 else "1GB"
    net, folder = make_model(config), tmp_path_factory.mktemp("model")
    net.save_pretrained(folder, max_shard_size=several)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (several == "20KB")
    return Pair(config, net, *load(folder), several)


def row(*parts: tuple[np.ndarray | int, int]) -> list[np.ndarray]:
    """Tokens, positions and segment ids of documents, or of so much padding, one after the other:
    (document, its segment).
    """
    pieces = [
        (np.zeros(x, np.int32), 0) if isinstance(x, int) else (x, segment) for x, segment in parts
    ]
    positions = [np.arange(len(x), dtype=np.int32) * (segment > 0) for x, segment in pieces]
    segments = [np.full(len(x), segment, np.int32) for x, segment in pieces]
    return [np.concatenate(x) for x in ([x for x, _ in pieces], positions, segments)]


def test_logits_padded_and_packed_equal_those_of_transformers(pair: Pair):
    policy, (long, short) = pair.policy, pair.documents
    pad = ROW - LONG - SHORT
    rows = [
        row((pad, 0), (short, 1), (long, 2)),
        row((long, 1), (short, 2), (pad, 0)),
        row((short, 3), (pad, 0), (long, 1)),
    ]
    tokens, positions, segments = (np.stack(x) for x in zip(*rows))
    inputs = PolicyInputs(tokens=tokens, positions=positions, segment_ids=segments)
    got = jax.jit(
        lambda params, inputs: policy.logits(params, policy.apply(params, inputs).hidden)
    )(pair.params, inputs)
    want_long, want_short = logits(pair.net, *pair.left_padded)
    for index, long_at, short_at in ((0, pad + SHORT, pad), (1, 0, LONG), (2, pad + SHORT, 0)):
        np.testing.assert_allclose(
            got[index, long_at : long_at + LONG], want_long, atol=2e-4, rtol=0
        )
        np.testing.assert_allclose(
            got[index, short_at : short_at + SHORT], want_short[-SHORT:], atol=2e-4, rtol=0
        )
    assert want_long.std() > 0.1


def test_decoding_with_a_cache_writes_what_transformers_generates(pair: Pair):
    policy, documents = pair.policy, pair.documents
    unstacked, cache = policy.unstack(pair.params), policy.init_cache(2, LONG + WRITTEN)
    lengths = np.array([LONG, SHORT], np.int32)
    want, written = logits(pair.net, *pair.left_padded), []

    @jax.jit
    def step(params, cache, tokens, positions, real):
        output = policy.apply(
            params,
            PolicyInputs(tokens=tokens, positions=positions, segment_ids=real.astype(jnp.int32)),
            cache,
        )
        return output.cache, policy.logits(params, output.hidden)

    tokens, parts = np.stack([np.pad(x, (0, LONG - len(x))) for x in documents]), []
    for start in range(0, LONG, CHUNK):
        positions = np.broadcast_to(np.arange(start, start + CHUNK, dtype=np.int32), (2, CHUNK))
        cache, part = step(
            unstacked,
            cache,
            tokens[:, start : start + CHUNK],
            positions,
            positions < lengths[:, None],
        )
        parts.append(part)
    got = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(got[0], want[0], atol=2e-4, rtol=0)
    np.testing.assert_allclose(got[1, :SHORT], want[1, -SHORT:], atol=2e-4, rtol=0)
    last = got[np.arange(2), lengths - 1]
    for i in range(WRITTEN):
        written.append(last.argmax(-1).astype(np.int32))
        cache, part = step(
            unstacked, cache, written[-1][:, None], (lengths + i)[:, None], np.ones((2, 1), bool)
        )
        last = np.asarray(part)[:, -1]
    np.testing.assert_array_equal(
        np.stack(written, axis=1), generated(pair.net, *pair.left_padded, WRITTEN)
    )


def test_transformers_reads_a_saved_model_as_the_same_model(pair: Pair, tmp_path: Path):
    save(tmp_path / "it", pair.policy, pair.params)
    again, want = open_model(tmp_path / "it"), logits(pair.net, *pair.left_padded)
    original, its = pair.net.state_dict(), again.state_dict()
    assert list(original) == list(its) and all(
        torch.equal(original[name], its[name]) for name in original
    )
    np.testing.assert_array_equal(logits(again, *pair.left_padded), want)


def test_a_config_written_from_our_own_means_the_same(pair: Pair, tmp_path: Path):
    save(tmp_path / "it", dataclasses.replace(pair.policy, origin=None), pair.params)
    got, want = (logits(net, *pair.left_padded) for net in (open_model(tmp_path / "it"), pair.net))
    np.testing.assert_allclose(got, want, atol=1e-5, rtol=0)


def test_bfloat16_weights_are_saved_bit_for_bit_as_they_were_loaded(pair: Pair, tmp_path: Path):
    make_model(pair.config, torch.bfloat16).save_pretrained(
        tmp_path / "first", max_shard_size=pair.several
    )
    policy, params = load(tmp_path / "first", param_dtype="bfloat16")
    save(tmp_path / "second", policy, params)
    first, second = (
        {k: v for f in (tmp_path / name).glob("*.safetensors") for k, v in load_file(f).items()}
        for name in ("first", "second")
    )
    assert set(first) == set(second) and {
        x.dtype.name for x in (*first.values(), *second.values())
    } == {"bfloat16"}
    for name, x in first.items():
        np.testing.assert_array_equal(x.view(np.uint16), second[name].view(np.uint16), err_msg=name)
