"""Several trained agents: shared and separate weights, alternating and joint phases, resumption."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.interruptions import interrupted_at
from support.small_runs import agent_weights, logged_metrics, rollout_source, small_experiment

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.methods.multi_turn import mars
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.pairwise.reward_model import RewardModelConfig
from agentrl_jax.algorithms.strategies.self_play import OtherAgent, SelfPlay
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.launch.players import Checkpoint, play_episodes
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import ByteTokenizer
from agentrl_jax.training import loop
from agentrl_jax.training.algorithm import AlgorithmConfig, PerAgent
from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.builders import load_policy
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.config_checks import check_agents, check_phases
from agentrl_jax.training.run import Run
from agentrl_jax.training.sources import Demonstrations, Rollouts

SHAPE: dict[str, Any] = {"bin_length": 32, "microbatch": 16}


def method(learning_rate: float = 1e-2) -> AlgorithmConfig:
    return grpo(optimizer=AdamWConfig(learning_rate), **SHAPE)


def poker(agents: dict[str, AgentConfig], phases: dict[str, Phase]) -> Experiment:
    """Kuhn poker by agents of a thousand weights."""
    return Experiment(
        name="poker",
        environment=EnvironmentConfig(
            "agentrl_jax.envs:agentrl/Kuhn-v0", {"opponent": "random"}, workers=0
        ),
        agent=AgentConfig(budget=2),
        agents=agents,
        tokenizer=ByteTokenizer(),
        policy=DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8),
        demonstrations=DemonstrationConfig("random", episodes=64),
        phases=phases,
        evaluation=EvaluationConfig(episodes=8, players=()),
        engine=EngineConfig(rows=32, positions=32, prefill_chunk=8, batching_delay=0.01),
        record_groups=0,
    )


def match_phase(strategy: SelfPlay, algorithm: AlgorithmConfig | PerAgent, **fields: Any) -> Phase:
    settings = {"steps": 3, "checkpoint_every": 1, **fields}
    return Phase("match", Rollouts(2, strategy), algorithm, **settings)


OTHER = SelfPlay(4, opponents=OtherAgent("rival"))


def equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def without_agents(line: dict[str, Any]) -> dict[str, Any]:
    agents = ("policy/return", "rival/return")
    return {key: value for key, value in line.items() if key not in agents}


@pytest.mark.slow
def test_two_roles_of_one_set_of_weights_are_self_play(tmp_path: Path):
    both = poker({}, {"match": match_phase(SelfPlay(4), method())})
    shared = poker(
        {"rival": AgentConfig(budget=2, shares="policy")}, {"match": match_phase(OTHER, method())}
    )
    for name, experiment in (("both", both), ("shared", shared)):
        loop.train(experiment, tmp_path / name, quiet=True)
    assert equal(
        agent_weights(both, tmp_path / "both", "match", "policy"),
        agent_weights(shared, tmp_path / "shared", "match", "policy"),
    )
    lines = [logged_metrics(tmp_path / name) for name in ("both", "shared")]
    assert lines[0] == list(map(without_agents, lines[1]))
    assert {"policy/return", "rival/return"} <= set(lines[1][0])


def two_agents(steps: int = 3, learning_rates: tuple[float, float] = (1e-2, 1e-2)) -> Experiment:
    algorithm = PerAgent(dict(zip(("policy", "rival"), map(method, learning_rates))))
    return poker(
        {"rival": AgentConfig(budget=2)}, {"match": match_phase(OTHER, algorithm, steps=steps)}
    )


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that trains two agents for three steps."""
    run_dir = tmp_path_factory.mktemp("joint")
    loop.train(two_agents(), run_dir, quiet=True)
    return run_dir


@pytest.fixture(scope="module")
def after_one_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same run, interrupted in the second step."""
    run_dir = tmp_path_factory.mktemp("after_one_step")
    with interrupted_at("match", 1):
        loop.train(two_agents(), run_dir, quiet=True)
    return run_dir


@pytest.mark.slow
def test_a_phase_trains_two_agents_each_with_its_own_weights_and_optimizer(joint: Path):
    rows = json.loads((joint / "summary.json").read_text())["table"]
    assert [row["name"] for row in rows] == ["match (policy)", "match (rival)"]
    policy, rival = (
        agent_weights(two_agents(), joint, "match", name) for name in ("policy", "rival")
    )
    assert not equal(policy, rival)
    _, _, _, loaded = load_policy(joint, agent="rival")
    assert equal(loaded, rival) and equal(load_policy(joint)[3], policy)
    lines = logged_metrics(joint)
    assert {"policy/loss", "rival/loss", "rival/return", "tokens"} <= set(lines[0])
    assert lines[0]["tokens"] == lines[0]["policy/tokens"] + lines[0]["rival/tokens"] > 0


@pytest.mark.slow
def test_what_an_agent_learns_in_a_step_does_not_depend_on_the_others_optimizer(
    after_one_step: Path, tmp_path: Path
):
    slow = two_agents(1, (1e-2, 1e-30))
    loop.train(slow, tmp_path, quiet=True)
    for name in ("policy", "rival"):
        assert equal(
            agent_weights(two_agents(), after_one_step, "match", name),
            agent_weights(slow, tmp_path, "match", name),
        ) == (name == "policy")


@pytest.mark.slow
def test_a_phase_of_two_agents_is_resumed_exactly(
    joint: Path, after_one_step: Path, tmp_path: Path
):
    stopped = shutil.copytree(after_one_step, tmp_path / "stopped")
    loop.train(two_agents(), stopped, quiet=True)
    assert logged_metrics(joint) == logged_metrics(stopped)
    for name in ("policy", "rival"):
        assert equal(
            agent_weights(two_agents(), joint, "match", name),
            agent_weights(two_agents(), stopped, "match", name),
        )


def alternating() -> Experiment:
    """The agents are trained in turns, from one cloning phase."""
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), **SHAPE)
    phases = {
        "sft": Phase("SFT", Demonstrations(8), cloning, steps=2),
        "policy_1": match_phase(OTHER, method(), steps=1),
        "rival_1": match_phase(OTHER, method(), steps=1, agent="rival", start="sft"),
        "policy_2": match_phase(OTHER, method(), steps=1),
    }
    for name in list(phases)[1:]:
        phases[name] = dataclasses.replace(phases[name], label=name)
    return poker({"rival": AgentConfig(budget=2)}, phases)


@pytest.mark.slow
def test_a_phase_trains_one_agent_and_the_others_play_with_their_newest_weights(tmp_path: Path):
    experiment = alternating()
    loop.train(experiment, tmp_path, quiet=True)

    def after(phase: str, agent: str) -> Any:
        return agent_weights(experiment, tmp_path, phase, agent)

    assert equal(after("policy_1", "rival"), after("sft", "rival"))
    assert equal(after("rival_1", "policy"), after("policy_1", "policy"))
    assert not equal(after("rival_1", "rival"), after("policy_1", "rival"))
    assert not equal(after("policy_2", "policy"), after("policy_1", "policy"))
    with Run(experiment, tmp_path, quiet=True) as run:
        started = run.start_params(experiment.phases["rival_1"], {"rival": None})
    assert equal(started, after("sft", "policy"))  # the rival started from the clone
    trajectories = play_episodes(
        experiment.environment, None, Checkpoint(tmp_path, "rival_1"), 3, 5, 1.0
    )
    assert {t.agent for t in trajectories} == {"rival"}
    with pytest.raises(UserError, match="no phase 'sft' that trains rival, only rival_1"):
        play_episodes(experiment.environment, None, Checkpoint(tmp_path, "sft", "rival"), 3, 5, 1.0)


@pytest.mark.slow
def test_two_agents_with_separate_weights_both_get_better(tmp_path: Path):
    """Against the game's random policy, from clones of it; measured on the same seeds."""
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(3e-3), **SHAPE)
    method = mars(rewards=None, optimizer=AdamWConfig(2e-3, warmup_steps=3), minibatches=2, **SHAPE)
    experiment = poker(
        {"rival": AgentConfig(budget=2)},
        {
            "sft": Phase("SFT", Demonstrations(32), cloning, steps=60),
            "match": Phase(
                "match",
                Rollouts(16, SelfPlay(8, opponents=OtherAgent("rival"))),
                PerAgent({"policy": method, "rival": method}),
                steps=40,
                start="sft",
            ),
        },
    )
    assert experiment.demonstrations
    experiment.demonstrations.episodes, experiment.evaluation.episodes = 500, 256
    experiment.policy = DecoderConfig(
        layers=2, width=32, hidden=64, heads=2, kv_heads=1, head_size=16
    )
    experiment.engine.rows, experiment.mesh = 128, MeshConfig(devices_per_process=1)
    rows = {row.name: row.mean_return for row in loop.train(experiment, tmp_path, quiet=True)}
    assert (
        rows["match (policy)"] > rows["SFT"] + 0.15 and rows["match (rival)"] > rows["SFT"] + 0.15
    )
    difference = json.loads((tmp_path / "summary.json").read_text())["difference"]
    assert difference is None  # the last row's agent has no earlier one


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ({"policy": AgentConfig()}, "'policy' is config.agent"),
        ({"keys": AgentConfig()}, "config.agents: 'keys' cannot be a name"),
        ({"a": AgentConfig(shares="b")}, "agents.a.shares: 'b' has no weights of its own"),
        ({"a": AgentConfig(shares="a")}, "agents.a.shares: 'a' has no weights of its own, only po"),
        ({"a": AgentConfig(shares="policy", policy=DecoderConfig())}, "shares or policy, not both"),
    ],
)
def test_an_agent_that_cannot_be_is_refused(agents: dict[str, AgentConfig], message: str):
    with pytest.raises(UserError, match=message):
        check_agents(poker(agents, {}))


def test_the_main_agent_has_the_experiments_weights():
    with pytest.raises(UserError, match=r"shares and policy are for config\.agents"):
        check_agents(dataclasses.replace(poker({}, {}), agent=AgentConfig(shares="rival")))


SHARED = {"scribe": AgentConfig(shares="policy")}


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (match_phase(OTHER, method(), agent="nobody"), "no agent 'nobody' .* only policy"),
        (match_phase(OTHER, method(), agent="scribe"), "no agent 'scribe' with weights"),
        (match_phase(OTHER, PerAgent({})), "needs an algorithm of its policy for each agent"),
        (
            match_phase(OTHER, PerAgent({"policy": RewardModelConfig(HeadConfig())})),
            "needs an algorithm of its policy for each agent",
        ),
    ],
)
def test_a_phase_of_an_agent_that_cannot_be_trained_is_refused(phase: Phase, message: str):
    with pytest.raises(UserError, match=message):
        check_phases(poker(SHARED, {"match": phase}))


@pytest.mark.slow
def test_asynchronous_rollouts_are_of_the_policy_alone(tmp_path: Path):
    experiment = small_experiment(AsyncRollouts(rollout_source()))
    experiment.agents = {"rival": AgentConfig(budget=3)}
    experiment.phases["rl"].agent = "rival"
    with (
        Run(experiment, tmp_path, quiet=True) as run,
        pytest.raises(UserError, match="follows the weights of the agent 'policy' alone"),
    ):
        experiment.phases["rl"].source.open(run.begin_phase("rl"))
