"""What the config of a run folder may name outside the package."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from agentrl_jax.algorithms.methods import dr_grpo
from agentrl_jax.capture.strategy import CapturedEpisodes
from agentrl_jax.configs.wordle_grpo import get_config
from agentrl_jax.errors import UserError
from agentrl_jax.inference.remote_config import RemoteEngineConfig
from agentrl_jax.models.tokenizers import ByteTokenizer
from agentrl_jax.storage import config_json, trust
from agentrl_jax.storage.config_json import to_json
from agentrl_jax.training.config import EnvironmentConfig, EvaluationConfig, Experiment, Phase
from agentrl_jax.training.model_configs import Endpoint
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.training.task_source import EnvironmentSpec
from agentrl_jax.workers.ray_pool import ClusterConfig

CHESS = "agentrl_jax.envs:agentrl/Chess-v0"
OWN = "agentrl_jax.envs:agentrl/Wordle-v0"
REMOTE = "agentrl_jax.envs:agentrl/RemotePriceList-v0"


def experiment_with(environment: EnvironmentConfig, **fields: Any) -> Experiment:
    return dataclasses.replace(get_config("smoke"), environment=environment, **fields)


def phase_with(strategy: CapturedEpisodes) -> Phase:
    return Phase("captured", Rollouts(2, strategy), dr_grpo(80.0))


@pytest.mark.parametrize(
    ("experiment", "location", "name"),
    [
        (experiment_with(EnvironmentConfig("x.y:mine/X-v0")), "environment.name", "x.y"),
        (
            experiment_with(EnvironmentConfig(OWN, interpreter="/tmp/evil")),
            "environment.interpreter",
            "/tmp/evil",
        ),
        (
            experiment_with(EnvironmentConfig(OWN, interpreters={CHESS: "/tmp/evil"})),
            f"environment.interpreters[{CHESS!r}]",
            "/tmp/evil",
        ),
        (
            experiment_with(EnvironmentConfig(CHESS, {"program": "/tmp/evil"})),
            "environment.options.program",
            "/tmp/evil",
        ),
        (
            experiment_with(EnvironmentConfig(OWN, cluster=ClusterConfig(2, "10.0.0.9:1"))),
            "environment.cluster.address",
            "10.0.0.9:1",
        ),
        (
            experiment_with(
                EnvironmentConfig(OWN),
                models={"j": Endpoint(RemoteEngineConfig("http://e/v1", "m", 9), ByteTokenizer())},
            ),
            "models.j.server.url",
            "http://e/v1",
        ),
        (
            experiment_with(
                EnvironmentConfig(OWN),
                phases={"p": phase_with(CapturedEpisodes(("{python}", "evil.py")))},
            ),
            "phases.p.source.strategy.command",
            "{python} evil.py",
        ),
        (
            experiment_with(EnvironmentConfig(REMOTE, {"command": "sh evil.sh"})),
            "environment.options.command",
            "sh evil.sh",
        ),
        (
            experiment_with(EnvironmentConfig(REMOTE, {"url": "http://e/mcp"})),
            "environment.options.url",
            "http://e/mcp",
        ),
        (
            experiment_with(
                EnvironmentConfig(OWN),
                phases={
                    "p": phase_with(
                        CapturedEpisodes(
                            ("{python}", "-m", "agentrl_jax.launch.train", "--config=evil.py")
                        )
                    )
                },
            ),
            "phases.p.source.strategy.command",
            "{python} -m agentrl_jax.launch.train --config=evil.py",
        ),
        (
            experiment_with(
                EnvironmentConfig(OWN),
                evaluation=EvaluationConfig(environments={"e": EnvironmentSpec("z:mine/X-v0")}),
            ),
            "evaluation.environments.e.name",
            "z",
        ),
    ],
)
def test_a_run_folder_may_name_what_is_outside_the_package_only_if_it_is_trusted(
    experiment: Experiment,
    location: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    config_json.bind_run_dir(tmp_path, experiment)
    with pytest.raises(
        UserError, match=rf"config\.{re.escape(location)} .* {re.escape(name)}, which"
    ):
        config_json.load_config(tmp_path)
    monkeypatch.setattr(trust, "_trusted", {"agentrl_jax"})
    trust.trust(name)
    assert to_json(config_json.load_config(tmp_path)) == to_json(experiment)


def test_programs_of_the_package_are_trusted_and_no_name_is_refused(tmp_path: Path):
    player = ("{python}", "-m", "agentrl_jax.envs.programs.player")
    phases = {"p": phase_with(CapturedEpisodes(player))}
    config_json.bind_run_dir(tmp_path, experiment_with(EnvironmentConfig(OWN), phases=phases))
    config_json.load_config(tmp_path)
    with pytest.raises(UserError, match="--trust needs the name"):
        trust.trust(" ")
