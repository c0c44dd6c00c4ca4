"""Numbers that cannot be used are refused in one sentence before anything is built."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from absl import flags
from support import letters_config

from agentrl_jax.configs import desk_gated, keydoor_dart
from agentrl_jax.errors import UserError
from agentrl_jax.launch import cli
from agentrl_jax.launch.dataclass_flags import parse_literals
from agentrl_jax.launch.serving import check_dtype
from agentrl_jax.storage import config_json
from agentrl_jax.storage.digests import forget_digest
from agentrl_jax.storage.nan_checks import check_not_nan
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.run import Run


def set_field(path: str, value: object) -> Callable[[Experiment], None]:
    def change(experiment: Experiment) -> None:
        *parents, name = path.split(".")
        config = experiment
        for parent in parents:
            config = config[parent] if isinstance(config, dict) else getattr(config, parent)
        assert hasattr(config, name), path
        setattr(config, name, value)

    return change


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("seed", 10**30, r"config.seed must be from 0 to 4,294,967,295, not 1,000,"),
        ("seed", -1, r"config.seed must be from 0"),
        ("evaluation.seed", 10**30, r"config.evaluation.seed must be from 0"),
        ("evaluation.episodes", -1, r"config.evaluation.episodes must be at least 0, not -1"),
        ("record_groups", -1, r"config.record_groups must be at least 0, not -1"),
        ("demonstrations.episodes", -1, r"config.demonstrations.episodes must be at least 1"),
        ("phases.rl.source.tasks", 0, r"config.phases.rl.source: rollouts need tasks"),
        ("environment.workers", 100_000, r"environment.workers must be at most 10,000"),
        ("agent.temperature", math.nan, r"config.agent.temperature=nan is not a number"),
        (
            "phases.sft.algorithm.optimizer.learning_rate",
            math.nan,
            r"config.phases.sft.algorithm.optimizer.learning_rate=nan is not a number",
        ),
    ],
)
def test_a_wrong_number_is_refused_before_the_folder_is_made(
    tmp_path: Path, path: str, value: object, message: str
):
    experiment = letters_config.get_config()
    set_field(path, value)(experiment)
    with pytest.raises(UserError, match=message):
        Run(experiment, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_infinite_numbers_of_a_config_mean_no_limit():
    check_not_nan(desk_gated.get_config())
    check_not_nan(keydoor_dart.get_config("base"))


def test_a_config_file_with_nan_is_refused(tmp_path: Path):
    config_json.bind_run_dir(tmp_path, letters_config.get_config())
    path = tmp_path / config_json.CONFIG_FILE
    path.write_text(path.read_text().replace('"temperature": 1.0', '"temperature": NaN', 1))
    forget_digest(path)
    with pytest.raises(UserError, match=r"temperature=nan is not a number"):
        config_json.load_config(tmp_path)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_a_flag_that_is_not_finite_is_refused(value: str):
    flag_values = flags.FlagValues()
    flags.DEFINE_float("temperature", 1.0, "Of the policy.", flag_values=flag_values)
    cli.parse(["program", "--temperature=0.5"], flag_values)
    with pytest.raises(UserError, match=r"--temperature=-?(nan|inf) is not finite"):
        cli.parse(["program", f"--temperature={value}"], flag_values)


def test_an_option_of_an_environment_that_is_not_finite_is_refused():
    with pytest.raises(UserError, match="--option=reward=1e999 is not finite"):
        parse_literals(["reward=1e999"])


def test_an_unknown_dtype_is_refused():
    check_dtype("bfloat16")
    with pytest.raises(UserError, match=r"--dtype must be one of .*float32.*, not 'float99'"):
        check_dtype("float99")
