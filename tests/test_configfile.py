"""A run folder's config is read back as it was, belongs to one config, and cannot make the program import code."""

import dataclasses
import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl_jax import configfile
from agentrl_jax.algorithms.advantages import group_centred
from agentrl_jax.algorithms.aggregation import TrajectorySum, turn_mean
from agentrl_jax.algorithms.grpo import dr_grpo, grpo
from agentrl_jax.algorithms.losses import kl_k1
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.algorithms.surrogates import PPO
from agentrl_jax.algorithms.terms import KL
from agentrl_jax.configfile import claim, differences, from_json, load, to_json
from agentrl_jax.configs.wordle_grpo import get_config
from agentrl_jax.context import LastMessages
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import AgentConfig, Demonstrations, EnvironmentConfig, Experiment, Phase, Rollouts
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import BytePairs, byte_tokenizer
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.rendering import ChatRenderer
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.strategies import Independent


def experiment(**fields: Any) -> Experiment:
    """Every kind of thing that a config can hold."""
    settings = {
        "policy": DecoderConfig(width=48, tied_head=False),
        "tokenizer": BytePairs(vocab_size=300),
        "environment": EnvironmentConfig("agentrl/MazePO-v0", {"view": "goal", "nested": {"a": [1, 2.5, None, True]}}, workers=3),
        "agent": AgentConfig(ChatRenderer, LastMessages(7), temperature=0.7),
        "sft": Phase("SFT", Demonstrations(batch=8), SupervisedConfig(turn_mean, AdamWConfig(1e-4, clip_norm=0.3))),
        "rl": Phase("Dr.GRPO", Rollouts(4, Independent(3)), dr_grpo(80.0, regularisers={"kl": KL(0.05, kl_k1)}, minibatches=2), steps=7),
        "mesh": MeshConfig(fsdp=2),
        "seed": 11,
    }
    return Experiment("all of it", **{**settings, **fields})


def through_json(x: Any) -> Any:
    return from_json(json.loads(json.dumps(to_json(x))))


def test_an_experiment_is_read_back_as_it_was():
    before = experiment()
    after = through_json(before)
    assert to_json(after) == to_json(before)
    assert after.environment.options == {"view": "goal", "nested": {"a": (1, 2.5, None, True)}}  # JSON knows no tuple: lists become one
    after.environment.options = before.environment.options
    assert after == before
    assert after.rl.algorithm.advantage is group_centred and after.rl.algorithm.aggregation == TrajectorySum(80.0)
    assert (
        after.rl.algorithm.regularisers["kl"].estimator is kl_k1
        and after.agent.renderer is ChatRenderer
        and after.sft.algorithm.aggregation is turn_mean
    )


@pytest.mark.parametrize("variant", ["quickstart", "smoke"])
def test_the_configs_that_ship_are_read_back_as_they_were(variant: str):
    assert through_json(get_config(variant)) == get_config(variant)


def test_a_config_that_was_read_back_can_be_changed_and_built():
    after = through_json(experiment())
    after.rl.steps = 9
    assert after.policy.build(30).vocab_size == 30 and after.phases["rl"].steps == 9


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(data=plain)
def test_plain_data_of_any_shape_is_read_back(data: Any):
    # A dict that looks like a record of ours is still a dict.
    for x in (data, {"class": data, "fields": data, "function": data, "dict": data}):
        assert through_json(x) == x


def closure() -> Callable[[Any], Any]:
    def inner(x: Any) -> Any:
        return x

    return inner


NAMELESS = [lambda x: x, closure(), functools.partial(turn_mean), PPO(0.1).__call__]


@pytest.mark.parametrize("value", NAMELESS, ids=["lambda", "closure", "partial", "method"])
def test_a_function_that_could_not_be_named_again_is_refused_by_its_place(value: Any):
    config = experiment(rl=Phase("GRPO", Rollouts(), dataclasses.replace(grpo(), advantage=value)))
    with pytest.raises(UserError, match=r"^config\.rl\.algorithm\.advantage holds a function without a name of its own"):
        to_json(config)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, b"bytes", *NAMELESS])
def test_what_is_no_plain_data_is_refused_by_its_place(value: Any):
    with pytest.raises(UserError, match=r"^config\.environment\.options\.a\[1\] holds a "):
        to_json(experiment(environment=EnvironmentConfig(options={"a": [0, value]})))


@dataclasses.dataclass
class Own:
    """A class of the program's own."""

    x: int = 1


def test_names_of_modules_that_the_user_trusts_are_found(monkeypatch: pytest.MonkeyPatch):
    assert to_json(Own(3))["class"] == f"{__name__}:Own"
    with pytest.raises(UserError, match=f"--trust={__name__}"):
        through_json(Own(3))
    monkeypatch.setattr(configfile, "_TRUSTED", {"agentrl_jax"})
    configfile.trust(__name__)
    assert through_json(Own(3)) == Own(3) and through_json(closure) is closure


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"function": "this:s"}, "this:s, which is not part of this package: if this is yours, pass --trust=this"),
        ({"function": "os:system"}, "os:system, which is not part of this package"),
        ({"function": "agentrl_jax.worker:os.system"}, "which this package only imports"),
        ({"class": "antigravity:Fly", "fields": {}}, "not part of this package"),
        ({"function": "agentrl_jax.no_such_module:f"}, "which this version of the package does not have"),
        ({"function": "agentrl_jax.algorithms.losses:no_such_loss"}, "which this version of the package does not have"),
        ({"class": "agentrl_jax.optimizer:AdamWConfig", "fields": {"momentum": 0.9}}, "made by another version of .*AdamWConfig.*momentum"),
        ({"class": "agentrl_jax.errors:UserError", "fields": {}}, "is no dataclass"),
        ({"class": "agentrl_jax.algorithms.losses:kl_k1", "fields": {}}, "is no dataclass"),
    ],
)
def test_names_from_elsewhere_are_refused(data: Any, words: str):
    with pytest.raises(UserError, match=words):
        from_json(data)
    assert "this" not in sys.modules and "antigravity" not in sys.modules


def test_a_folder_belongs_to_one_config(tmp_path: Path):
    run_dir = tmp_path / "deep" / "run"
    assert claim(run_dir, experiment()) is False
    assert claim(run_dir, experiment()) is True
    assert to_json(load(run_dir)) == to_json(experiment())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seed": 12}, "config.seed was 11 and is 12"),
        ({"policy": DecoderConfig(width=64, tied_head=False)}, "config.policy.width was 48 and is 64"),
        ({"rl": None}, "config.rl was .* and is null"),
        ({"tokenizer": byte_tokenizer}, "config.tokenizer"),
        ({"agent": AgentConfig(ChatRenderer, LastMessages(8), temperature=0.7)}, "config.agent.context.count was 7 and is 8"),
        ({"mesh": MeshConfig(), "seed": 1}, r"config.mesh.fsdp was 2 and is 1 and 1 more"),
        ({"environment": EnvironmentConfig("agentrl/MazePO-v0", {"view": "goal"}, workers=3)}, "config.environment.options.nested was"),
    ],
)
def test_another_config_is_told_which_field_differs(tmp_path: Path, fields: dict[str, Any], words: str):
    claim(tmp_path, experiment())
    with pytest.raises(
        UserError, match=rf"{re.escape(str(tmp_path))} belongs to another config \({words}.*pass --run_dir=\.\.\. or --fresh"
    ):
        claim(tmp_path, experiment(**fields))
    assert claim(tmp_path, experiment())


def test_equal_configs_have_no_differences():
    assert list(differences(to_json(experiment()), to_json(experiment()))) == []
    assert list(differences({"a": 1}, {"b": 1})) == ["config.a was 1 and is null", "config.b was null and is 1"]


DAMAGED = {
    "empty": b"",
    "cut": b'{"class": "agentrl_jax.experiment:Expe',
    "not text": b"\xff\xfe\x00\x01",
    "a list": b"[]",
    "null": b"null",
    "no class": b"{}",
    "no fields": b'{"class": "agentrl_jax.experiment:Experiment"}',
    "a number for a class": b'{"class": 5, "fields": {}}',
    "a list of fields": b'{"class": "agentrl_jax.sharding:MeshConfig", "fields": [1]}',
    "no name": b'{"function": ""}',
    "a function": b'{"function": "agentrl_jax.algorithms.losses:kl_k1"}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_config_is_one_sentence(tmp_path: Path, content: bytes):
    (tmp_path / "config.json").write_bytes(content)
    for attempt in (lambda: load(tmp_path), lambda: claim(tmp_path, experiment())):
        with pytest.raises(UserError) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert (tmp_path / "config.json").read_bytes() == content


def test_a_folder_that_is_none_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match=r"is no run folder: it has no config\.json"):
        load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        claim(tmp_path / "file", experiment())
    with pytest.raises(UserError, match=r"no run folder|cannot be read"):
        load(tmp_path / "file")
