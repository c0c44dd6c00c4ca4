"""Configs survive JSON unchanged; a run folder has one config of one format version, and cannot
make the program import foreign code.
"""

import dataclasses
import functools
import json
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl_jax.algorithms.advantages.group import group_centered
from agentrl_jax.algorithms.advantages.token_weights import TrajectorySum, turn_mean
from agentrl_jax.algorithms.losses.kl import kl_k1
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods import dr_grpo, grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.configs import chain_epo_strategic
from agentrl_jax.configs.wordle_grpo import get_config
from agentrl_jax.context import LastMessages
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import BPETokenizer, byte_tokenizer
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage import config_json, run_folder, trust
from agentrl_jax.storage.config_json import (
    bind_run_dir,
    differences,
    from_json,
    load_config,
    to_json,
)
from agentrl_jax.storage.digests import forget_digest
from agentrl_jax.storage.format_version import RUN_FORMAT_VERSION
from agentrl_jax.training.config import (
    AgentConfig,
    EnvironmentConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.sources import Demonstrations, Rollouts


def full_experiment(**fields: Any) -> Experiment:
    """Every kind of value that a config can hold."""
    settings = {
        "policy": DecoderConfig(width=48, tied_head=False),
        "tokenizer": BPETokenizer(vocab_size=300),
        "environment": EnvironmentConfig(
            "agentrl/MazePO-v0", {"view": "goal", "nested": {"a": [1, 2.5, None, True]}}, workers=3
        ),
        "agent": AgentConfig(ChatRenderer, LastMessages(7), temperature=0.7),
        "phases": {
            "sft": Phase(
                "SFT",
                Demonstrations(batch=8),
                BehaviorCloningConfig(turn_mean, AdamWConfig(1e-4, clip_norm=0.3)),
            ),
            "rl": Phase(
                "Dr.GRPO",
                Rollouts(4, IndependentEpisodes(3)),
                dr_grpo(80.0, regularizers={"kl": KL(0.05, kl_k1)}, minibatches=2),
                steps=7,
            ),
        },
        "mesh": MeshConfig(fsdp=2),
        "seed": 11,
    }
    return Experiment("everything", **{**settings, **fields})


def through_json(x: Any) -> Any:
    return from_json(json.loads(json.dumps(to_json(x))))


def test_an_experiment_is_read_back_unchanged():
    before = full_experiment()
    after = through_json(before)
    assert to_json(after) == to_json(before)
    assert after.environment.options == {
        "view": "goal",
        "nested": {"a": (1, 2.5, None, True)},
    }  # JSON knows no tuple: lists become one
    after.environment.options = before.environment.options
    assert after == before
    assert after.phases["rl"].algorithm.advantage is group_centered and after.phases[
        "rl"
    ].algorithm.aggregation == TrajectorySum(80.0)
    assert (
        after.phases["rl"].algorithm.regularizers["kl"].estimator is kl_k1
        and after.agent.renderer is ChatRenderer
        and after.phases["sft"].algorithm.aggregation is turn_mean
    )


@pytest.mark.parametrize("variant", ["quickstart", "smoke"])
def test_the_shipped_configs_are_read_back_unchanged(variant: str):
    assert through_json(get_config(variant)) == get_config(variant)


def test_a_digest_changes_with_any_field_and_only_then():
    config = get_config("smoke")
    digest = config_json.digest(config)
    assert digest == config_json.digest(get_config("smoke")) and len(digest) == 16
    assert digest == config_json.digest(config_json.from_json(config_json.to_json(config)))
    config.agent.limits.tokens += 1
    assert digest != config_json.digest(config)


def test_a_config_that_was_read_back_can_be_changed_and_built():
    after = through_json(full_experiment())
    after.phases["rl"].steps = 9
    assert after.policy.build(30).vocab_size == 30 and after.phases["rl"].steps == 9


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(data=plain)
def test_plain_data_of_any_shape_is_read_back(data: Any):
    # A dict with the keys of an encoded dataclass is still a dict.
    for x in (data, {"class": data, "fields": data, "function": data, "dict": data}):
        assert through_json(x) == x


def closure() -> Callable[[Any], Any]:
    def inner(x: Any) -> Any:
        return x

    return inner


NAMELESS = [lambda x: x, closure(), functools.partial(turn_mean), PPO(0.1).__call__]


@pytest.mark.parametrize("value", NAMELESS, ids=["lambda", "closure", "partial", "method"])
def test_a_function_that_cannot_be_imported_again_is_refused_with_its_location(value: Any):
    config = full_experiment(
        phases={"rl": Phase("GRPO", Rollouts(), dataclasses.replace(grpo(), advantage=value))}
    )
    with pytest.raises(
        UserError,
        match=r"^config\.phases\.rl\.algorithm\.advantage holds a function without a name of its "
        "own",
    ):
        to_json(config)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, b"bytes", *NAMELESS])
def test_a_value_that_is_no_plain_data_is_refused_with_its_location(value: Any):
    with pytest.raises(UserError, match=r"^config\.environment\.options\.a\[1\] holds a "):
        to_json(full_experiment(environment=EnvironmentConfig(options={"a": [0, value]})))


@dataclasses.dataclass
class UserConfig:
    """A class of the user's program."""

    x: int = 1


def test_names_of_trusted_modules_are_imported(monkeypatch: pytest.MonkeyPatch):
    assert to_json(UserConfig(3))["class"] == f"{__name__}:UserConfig"
    with pytest.raises(UserError, match=f"--trust={__name__}"):
        through_json(UserConfig(3))
    monkeypatch.setattr(trust, "_trusted", {"agentrl_jax"})
    trust.trust(__name__)
    assert through_json(UserConfig(3)) == UserConfig(3) and through_json(closure) is closure


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"function": "this:s"},
            "this:s, which is not part of this package: if this is yours, pass --trust=this",
        ),
        ({"function": "os:system"}, "os:system, which is not part of this package"),
        ({"function": "agentrl_jax.workers.server:os.system"}, "which this package only imports"),
        ({"class": "antigravity:Fly", "fields": {}}, "not part of this package"),
        (
            {"function": "agentrl_jax.no_such_module:f"},
            "which this version of the package does not have",
        ),
        (
            {"function": "agentrl_jax.algorithms.losses.policy:no_such_loss"},
            "which this version of the package does not have",
        ),
        (
            {"class": "agentrl_jax.learner.optimizer:AdamWConfig", "fields": {"momentum": 0.9}},
            "made by another version of .*AdamWConfig.*momentum",
        ),
        ({"class": "agentrl_jax.errors:UserError", "fields": {}}, "is no dataclass"),
        ({"class": "agentrl_jax.algorithms.losses.kl:kl_k1", "fields": {}}, "is no dataclass"),
    ],
)
def test_names_of_other_modules_are_refused(data: Any, message: str):
    with pytest.raises(UserError, match=message):
        from_json(data)
    assert "this" not in sys.modules and "antigravity" not in sys.modules


def test_a_folder_belongs_to_one_config(tmp_path: Path):
    run_dir = tmp_path / "deep" / "run"
    assert bind_run_dir(run_dir, full_experiment()) is False
    assert bind_run_dir(run_dir, full_experiment()) is True
    assert to_json(load_config(run_dir)) == to_json(full_experiment())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seed": 12}, "config.seed was 11 and is 12"),
        (
            {"policy": DecoderConfig(width=64, tied_head=False)},
            "config.policy.width was 48 and is 64",
        ),
        (
            {"phases": dict(list(full_experiment().phases.items())[:1])},
            "config.phases.rl was .* and is null",
        ),
        (
            {"phases": dict(reversed(full_experiment().phases.items()))},
            "config.phases was in the order sft, rl and is in the order rl, sft",
        ),
        ({"tokenizer": byte_tokenizer}, "config.tokenizer"),
        (
            {"agent": AgentConfig(ChatRenderer, LastMessages(8), temperature=0.7)},
            "config.agent.context.count was 7 and is 8",
        ),
        ({"mesh": MeshConfig(), "seed": 1}, r"config.mesh.fsdp was 2 and is 1 and 1 more"),
        (
            {"environment": EnvironmentConfig("agentrl/MazePO-v0", {"view": "goal"}, workers=3)},
            "config.environment.options.nested was",
        ),
    ],
)
def test_another_config_is_refused_with_the_field_that_differs(
    tmp_path: Path, fields: dict[str, Any], message: str
):
    bind_run_dir(tmp_path, full_experiment())
    with pytest.raises(
        UserError,
        match=rf"{re.escape(str(tmp_path))} belongs to another config \({message}.*"
        r"pass --run_dir=\.\.\. or --fresh",
    ):
        bind_run_dir(tmp_path, full_experiment(**fields))
    assert bind_run_dir(tmp_path, full_experiment())


def test_equal_configs_have_no_differences():
    assert list(differences(to_json(full_experiment()), to_json(full_experiment()))) == []
    assert list(differences({"a": 1}, {"b": 1})) == [
        "config.a was 1 and is null",
        "config.b was null and is 1",
    ]


def write_config(run_dir: Path, **changes: Any) -> None:
    """The config.json of `full_experiment` with other top-level values; None removes one."""
    bind_run_dir(run_dir, full_experiment())
    data = json.loads((run_dir / "config.json").read_text()) | changes
    data = {key: value for key, value in data.items() if value is not None}
    (run_dir / "config.json").write_text(json.dumps(data))
    forget_digest(run_dir / "config.json")


@pytest.mark.parametrize(
    ("version", "description"),
    [(None, "no format version"), (1, "format version 1"), (99, "format version 99")],
)
def test_a_run_folder_of_another_format_version_is_refused(
    tmp_path: Path, version: int | None, description: str
):
    write_config(tmp_path, format_version=version)
    content = (tmp_path / "config.json").read_bytes()
    message = (
        rf"the run folder {re.escape(str(tmp_path))} has {description}, and this version of the "
        rf"package reads only format version {RUN_FORMAT_VERSION}: use the version that wrote it, "
        r"or start over with --fresh or another --run_dir$"
    )
    with pytest.raises(UserError, match=message):
        load_config(tmp_path)
    with pytest.raises(UserError, match=message):
        bind_run_dir(tmp_path, full_experiment())
    assert (tmp_path / "config.json").read_bytes() == content


def test_a_config_that_names_a_class_of_an_older_version_is_reported(tmp_path: Path):
    write_config(tmp_path, **{"class": "agentrl_jax.experiment:Experiment"})
    with pytest.raises(
        UserError,
        match=r"names agentrl_jax\.experiment:Experiment, which this version of the package does "
        r"not have: read the run with the version that wrote it, or train it again",
    ):
        load_config(tmp_path)


DAMAGED = {
    "empty": b"",
    "truncated": b'{"format_version": 3, "class": "agentrl_jax.training.config:Expe',
    "not text": b"\xff\xfe\x00\x01",
    "a list": b"[]",
    "null": b"null",
    "no class": b'{"format_version": 3}',
    "no fields": b'{"format_version": 3, "class": "agentrl_jax.training.config:Experiment"}',
    "a number for a class": b'{"format_version": 3, "class": 5, "fields": {}}',
    "a list of fields": b'{"format_version": 3, '
    b'"class": "agentrl_jax.distributed.sharding:MeshConfig", "fields": [1]}',
    "no name": b'{"format_version": 3, "function": ""}',
    "a function": b'{"format_version": 3, "function": "agentrl_jax.algorithms.losses.kl:kl_k1"}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_config_is_reported_in_one_sentence(tmp_path: Path, content: bytes):
    (tmp_path / "config.json").write_bytes(content)
    for attempt in (
        lambda: load_config(tmp_path),
        lambda: bind_run_dir(tmp_path, full_experiment()),
    ):
        with pytest.raises(UserError) as caught:
            attempt()
        message = str(caught.value)
        assert "\n" not in message and "format version" not in message
    assert (tmp_path / "config.json").read_bytes() == content


def test_a_path_that_is_no_run_folder_is_reported_in_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match=r"is no run folder: it has no config\.json"):
        load_config(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        bind_run_dir(tmp_path / "file", full_experiment())
    with pytest.raises(UserError, match=r"no run folder|cannot be read"):
        load_config(tmp_path / "file")


def load_as_flags_do(path: Path) -> Any:
    spec = spec_from_file_location("config_config", path)
    assert spec is not None and spec.loader is not None
    sys.modules["config_config"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_functions_of_a_config_file_are_named_by_its_importable_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    request.addfinalizer(lambda: sys.modules.pop("config_config", None))
    config_file = tmp_path / "my_config_file.py"
    config_file.write_text("def judge():\n    pass\n")
    with pytest.raises(UserError, match=r"holds judge of .*my_config_file\.py, .*\(PYTHONPATH="):
        to_json(load_as_flags_do(config_file).judge)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert to_json(load_as_flags_do(config_file).judge) == {"function": "my_config_file:judge"}
    ours = load_as_flags_do(Path(chain_epo_strategic.__file__))
    assert through_json(ours.progress_turns) is chain_epo_strategic.progress_turns


def test_a_run_folder_says_what_code_it_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bind_run_dir(tmp_path, full_experiment())
    stored = json.loads((tmp_path / config_json.CONFIG_FILE).read_text())[config_json.CODE_KEY]
    assert stored["jax"] == version("jax") and run_folder.code_changes(tmp_path) == []
    monkeypatch.setattr(run_folder, "code_version", lambda: {**stored, "jax": "99.0"})
    assert run_folder.code_changes(tmp_path) == [f"jax {stored['jax']}, now 99.0"]
    assert bind_run_dir(tmp_path, full_experiment())  # which is no other config


def test_a_run_folder_says_with_which_flags_of_the_compiler_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_a=1")
    bind_run_dir(tmp_path, full_experiment())
    stored = json.loads((tmp_path / config_json.CONFIG_FILE).read_text())[config_json.CODE_KEY]
    assert stored["LIBTPU_INIT_ARGS"] == "--xla_a=1" and run_folder.code_changes(tmp_path) == []
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_a=2")
    (change,) = run_folder.code_changes(tmp_path)
    assert change == "LIBTPU_INIT_ARGS --xla_a=1, now --xla_a=2"
