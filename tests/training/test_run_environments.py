"""Several environments in one run: contexts, metrics, evaluation by label and elsewhere, resume."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import mixture_config
from support.fixtures import make_call, make_turn
from support.interruptions import interrupted_at
from support.small_runs import logged_metrics, small_experiment

from agentrl_jax.algorithms.contexts.evolved_instruction import SystemInstruction
from agentrl_jax.context import ContextByEnvironment, FullHistory, LastMessages
from agentrl_jax.errors import UserError
from agentrl_jax.launch import players
from agentrl_jax.messages import user
from agentrl_jax.training import loop
from agentrl_jax.training.config import EnvironmentConfig, Experiment
from agentrl_jax.training.config_checks import check_config
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.rollout_metrics import episode_stats, rollout_metrics
from agentrl_jax.training.run_environments import evaluation_sources, make_environments
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.training.task_source import EnvironmentSpec
from agentrl_jax.trajectories import Group, Trajectory

KUHN = EnvironmentSpec("agentrl_jax.envs:agentrl/Kuhn-v0", {"opponent": "random"})
HANABI = EnvironmentSpec("agentrl_jax.envs:agentrl/MiniHanabi-v0")


def two_games(**fields: Any) -> Experiment:
    source = Rollouts(task_source=Mixture({"kuhn": KUHN, "hanabi": HANABI}))
    experiment = small_experiment(
        source, environment=EnvironmentConfig(KUHN.name, workers=0), **fields
    )
    assert experiment.demonstrations is not None
    experiment.demonstrations.player = "random"
    return experiment


def test_every_environment_keeps_its_own_context():
    environments = make_environments(two_games())
    assert list(environments.by_label) == [KUHN.name, "kuhn", "hanabi"]
    context = environments.context
    assert context.for_environment("hanabi") == LastMessages(1)
    assert context.for_environment("kuhn") == context.for_environment("other") == FullHistory()
    wrapped = SystemInstruction("be right", inner=context)
    assert wrapped.for_environment("hanabi") == SystemInstruction("be right", inner=LastMessages(1))
    assert LastMessages(3).for_environment("hanabi") == LastMessages(3)
    alone = small_experiment(Rollouts(), environment=EnvironmentConfig(HANABI.name, workers=0))
    assert make_environments(alone).context == LastMessages(1)  # without a wrapper
    assert isinstance(context, ContextByEnvironment)


def test_a_label_that_stands_for_two_environments_is_refused():
    experiment = two_games()
    experiment.evaluation.environments = {"kuhn": EnvironmentSpec(KUHN.name)}
    with pytest.raises(UserError, match="kuhn stands for two environments"):
        make_environments(experiment)
    experiment.evaluation.environments = {"kuhn": KUHN, "other": EnvironmentSpec(KUHN.name)}
    assert list(make_environments(experiment).by_label) == [KUHN.name, "kuhn", "hanabi", "other"]


def test_every_environment_needs_the_players_of_its_evaluation():
    experiment = two_games()
    experiment.evaluation.players = ("random", "weak")
    experiment.evaluation.environments = {
        "chain": EnvironmentSpec("agentrl_jax.envs:agentrl/Chain-v0"),
        "kuhn": KUHN,
    }
    with pytest.raises(UserError, match=r"evaluation.players: Kuhn has no scripted policy 'weak'"):
        check_config(experiment, make_environments(experiment))
    experiment.evaluation.environments = {"a/b": KUHN}
    with pytest.raises(UserError, match="'a/b' is no label"):
        check_config(experiment, make_environments(experiment))
    assert evaluation_sources(two_games()) == {"": two_games().environment}


def test_metrics_of_each_environment_stand_beside_those_of_all():
    def group(label: str, *rewards: float, stop_reason: Any = "terminated") -> Group:
        turn = [make_turn([make_call([1], [2])], reward, terminated=True) for reward in rewards]
        members = tuple(
            Trajectory((user("?"),), (t,), f"{label}#1", success=t.reward > 0,
                       stop_reason=stop_reason)
            for t in turn
        )  # fmt: skip
        return Group(f"{label}#1", members, num_dropped=1)

    stats = episode_stats([group("kuhn", 1, 0), group("ttt", 2, 2, stop_reason="turns")])
    stats = json.loads(json.dumps(stats))  # they travel between processes
    metrics = rollout_metrics(stats, ("kuhn", "ttt", "absent"))
    for name, (everything, kuhn, ttt) in {
        "return": (1.25, 0.5, 2.0),
        "success": (0.75, 0.5, 1.0),
        "truncated": (0.5, 0.0, 1.0),
        "stopped/turns": (0.5, 0.0, 1.0),
        "dropped": (2.0, 1.0, 1.0),
        "turns": (1.0, 1.0, 1.0),
    }.items():
        assert metrics[f"rollout/{name}"] == everything, name
        assert metrics[f"rollout/kuhn/{name}"] == kuhn and metrics[f"rollout/ttt/{name}"] == ttt
    assert metrics["rollout/absent/turns_played"] == 0 and "rollout/absent/return" not in metrics
    without = rollout_metrics(stats)
    assert without == {name: x for name, x in metrics.items() if name in without}
    assert not any("kuhn" in name for name in without)


@pytest.mark.slow
def test_a_mixture_trains_and_is_evaluated_by_label_and_elsewhere(tmp_path: Path):
    table = loop.train(mixture_config.get_config(), tmp_path / "unbroken", quiet=True)
    assert [(row.environment, row.name) for row in table] == [
        (label, name)
        for label, demonstrated in (("letters", "data set"), ("held-out", "random"))
        for name in (demonstrated, "SFT", "GRPO", "expert")
    ]
    for label in ("letters", "held-out"):
        assert (tmp_path / "unbroken/evaluations" / label / "GRPO.jsonl").exists()
    lines = [line for line in logged_metrics(tmp_path / "unbroken") if line["phase"] == "rl"]
    for line in lines:
        counts = [line[f"rollout/{label}/turns_played"] for label in ("letters", "varied")]
        assert sum(counts) == line["rollout/turns_played"]
        assert line["tasks/letters/fraction"] + line["tasks/varied/fraction"] == pytest.approx(1)
    assert any("rollout/letters/success" in line for line in lines)
    assert (tmp_path / "unbroken/curves.png").exists()

    with interrupted_at("rl", 3):
        loop.train(mixture_config.get_config(), tmp_path / "stopped", quiet=True)
    loop.train(mixture_config.get_config(), tmp_path / "stopped", quiet=True)
    assert logged_metrics(tmp_path / "stopped") == logged_metrics(tmp_path / "unbroken")

    for name, trained in (("held-out", "Chain"), ("agentrl_jax.envs:agentrl/Kuhn-v0", "Kuhn")):
        environment = players.resolve_environment(name, [], str(tmp_path / "stopped"), 0)
        assert trained in environment.name
        checkpoint = players.Checkpoint(tmp_path / "stopped")
        trajectories = players.play_episodes(environment, None, checkpoint, 3, 5, 1.0)
        assert [t.seed for t in trajectories] == [5, 6, 7] and all(t.turns for t in trajectories)
    assert environment.options == {}
