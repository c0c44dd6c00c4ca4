"""Phases of any names and number: trained in order, listed in the table, compared at the end."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from absl import flags
from support.fixtures import on_first_device
from support.interruptions import interrupted_at
from support.small_runs import agent_weights, logged_metrics, rollout_source, small_experiment

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.pairwise.reward_model import RewardModelConfig
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.errors import UserError
from agentrl_jax.launch import cli
from agentrl_jax.learner.checkpoint import load_params
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.weight_averaging import Interpolation
from agentrl_jax.training import loop
from agentrl_jax.training.algorithm import Unchanged
from agentrl_jax.training.builders import find_checkpoint, load_policy
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.config_checks import check_phases
from agentrl_jax.training.run import Run
from agentrl_jax.training.sources import Demonstrations, NoExperience


def three_phases(steps: int = 2) -> Experiment:
    """Cloning, GRPO and cloning again; a policy so fresh has no success from which GRPO learns."""
    experiment = small_experiment(rollout_source(), steps, checkpoint_every=1)
    algorithm = experiment.phases["rl"].algorithm
    experiment.phases = {
        name: Phase(name.upper(), rollout_source(), algorithm, steps, checkpoint_every=1)
        for name in ("warm", "main", "polish")
    }
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)
    for name in ("warm", "polish"):
        experiment.phases[name] = dataclasses.replace(
            experiment.phases[name], source=Demonstrations(4), algorithm=cloning
        )
    experiment.evaluation.players = ("random", "expert")
    return experiment


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the three phases."""
    run_dir = tmp_path_factory.mktemp("unbroken")
    loop.train(three_phases(), run_dir, quiet=True)
    return run_dir


@pytest.mark.slow
def test_phases_are_trained_in_order_and_the_last_two_compared(unbroken: Path):
    summary = json.loads((unbroken / "summary.json").read_text())
    names = [row["name"] for row in summary["table"]]
    assert names == ["data set", "WARM", "MAIN", "POLISH", "expert"]
    lines = logged_metrics(unbroken)
    assert [(line["phase"], line["step"]) for line in lines] == [
        (name, step) for name in ("warm", "main", "polish") for step in range(2)
    ]
    evaluated = {
        name: [
            json.loads(line)["return"]
            for line in (unbroken / f"evaluations/{name}.jsonl").read_text().splitlines()
        ]
        for name in ("MAIN", "POLISH")
    }
    expected = np.mean(np.subtract(evaluated["POLISH"], evaluated["MAIN"]))
    np.testing.assert_allclose(summary["difference"][0], expected)
    assert (unbroken / "checkpoints/polish").is_dir()
    experiment, _, policy, newest = load_policy(unbroken)
    assert find_checkpoint(experiment, unbroken) == ("polish", "policy")
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    polish = load_params(unbroken / "checkpoints/polish", shapes, on_first_device(shapes))
    jax.tree.map(np.testing.assert_array_equal, newest, polish)
    with pytest.raises(UserError, match="no phase 'rl' that trains an agent, only warm, main"):
        load_policy(unbroken, "rl")


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "step"), [("warm", 1), ("main", 0)])
def test_a_run_stopped_in_any_phase_and_resumed_equals_an_uninterrupted_one(
    phase: str, step: int, unbroken: Path, tmp_path: Path
):
    with interrupted_at(phase, step):
        loop.train(three_phases(), tmp_path, quiet=True)
    loop.train(three_phases(), tmp_path, quiet=True)
    assert logged_metrics(unbroken) == logged_metrics(tmp_path)
    summaries = [
        json.loads((run_dir / "summary.json").read_text()) for run_dir in (unbroken, tmp_path)
    ]
    for part in ("table", "difference"):
        assert summaries[0][part] == summaries[1][part]


def specialists() -> Experiment:
    """Two phases from the weights of the first, and their mean."""
    experiment = three_phases()
    experiment.phases["main"] = dataclasses.replace(experiment.phases["polish"], label="MAIN")
    for name in ("main", "polish"):
        experiment.phases[name].start = "warm"
    experiment.phases["merged"] = Phase(
        "MERGED",
        NoExperience(),
        Unchanged(),
        steps=1,
        start=Interpolation({"main": 0.25, "polish": 0.75}),
    )
    return experiment


@pytest.mark.slow
def test_specialists_start_from_one_phase_and_are_merged_by_another(tmp_path: Path):
    experiment = specialists()
    algorithm: Any = experiment.phases["polish"].algorithm
    experiment.phases["polish"].algorithm = dataclasses.replace(
        algorithm, optimizer=AdamWConfig(1e-30)
    )
    table = loop.train(experiment, tmp_path, quiet=True)
    assert [row.name for row in table][-2:] == ["MERGED", "expert"]
    warm, main, polish, merged = (
        agent_weights(experiment, tmp_path, name, "policy")
        for name in ("warm", "main", "polish", "merged")
    )
    jax.tree.map(np.testing.assert_array_equal, warm, polish)  # it did not learn
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, warm, main)))
    jax.tree.map(
        lambda a, b, c: np.testing.assert_allclose(c, 0.25 * a + 0.75 * b, atol=1e-6),
        main,
        polish,
        merged,
    )
    assert load_policy(tmp_path)[0].phases["merged"].start == Interpolation(
        {"main": 0.25, "polish": 0.75}
    )
    assert loop.train(experiment, tmp_path, quiet=True) == table  # resumed after its end


def judged_phases() -> Experiment:
    """A reward model between two phases of the policy."""
    experiment = three_phases()
    judge = RewardModelConfig(HeadConfig(layers=1), max_length=32, microbatch=4)
    experiment.phases["main"] = Phase("judge", rollout_source(3, 4), judge, 2, start="warm")
    return experiment


@pytest.mark.slow
def test_a_reward_model_is_a_phase_with_checkpoints_between_phases_of_the_policy(tmp_path: Path):
    experiment = judged_phases()
    table = loop.train(experiment, tmp_path / "run", quiet=True)
    assert [row.name for row in table] == ["data set", "WARM", "POLISH", "expert"]
    assert {line["phase"] for line in logged_metrics(tmp_path / "run")} == {
        "warm",
        "main",
        "polish",
    }
    with Run(experiment, tmp_path / "run", quiet=True) as run:
        model = CriticConfig(HeadConfig(layers=1)).build_model(run.policy)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    judge = load_params(tmp_path / "run/checkpoints/main", shapes, on_first_device(shapes))
    assert set(judge) == {"trunk", "head"}
    with pytest.raises(UserError, match="no phase 'main' that trains an agent"):
        load_policy(tmp_path / "run", "main")
    # The phase after it goes on from the policy before it.
    alone = three_phases()
    del alone.phases["main"]
    loop.train(alone, tmp_path / "alone", quiet=True)
    jax.tree.map(
        np.testing.assert_array_equal,
        agent_weights(experiment, tmp_path / "run", "polish", "policy"),
        agent_weights(alone, tmp_path / "alone", "polish", "policy"),
    )


def named(name: str, **fields: Any) -> Experiment:
    experiment = three_phases()
    experiment.phases[name] = Phase(
        **{"label": "other", "source": rollout_source(), "algorithm": Unchanged(), **fields}
    )
    return experiment


def judged_start(start: str) -> Experiment:
    experiment = judged_phases()
    experiment.phases["polish"].start = start
    return experiment


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (named("items"), "'items' cannot be a name"),
        (named("a/b"), "'a/b' cannot be a name"),
        (named(""), "'' cannot be a name"),
        (named("again", label="MAIN"), r"phases\.\w+\.label: 'MAIN' has a / or is the label"),
        (named("again", label="expert"), r"phases\.again\.label: 'expert' has .*players"),
        (named("apart", label="a/b"), "'a/b' has a /"),
        (named("empty", steps=0), "phases.empty: steps, .* at least 1"),
        (
            named("lost", start="later"),
            "start: 'later' is no phase before it .* warm, main, polish",
        ),
        (named("own", start="own"), "start: 'own' is no phase before it"),
        (named("mean", start=Interpolation({"rl": 1.0})), "phases.mean.start: 'rl' is no phase"),
        (
            judged_start("main"),
            "phases.polish.start: 'main' is no phase before it with weights for 'policy'; .* warm",
        ),
        (named("late", publish_every=3), "phases.late: .* must be a multiple"),
    ],
)
def test_a_phase_that_cannot_be_run_is_refused_in_one_sentence(
    experiment: Experiment, message: str
):
    check_phases(three_phases())
    with pytest.raises(UserError, match=message):
        check_phases(experiment)


CONFIG = Path(__file__).parents[1] / "support" / "letters_config.py"


def parsed(*arguments: str) -> Experiment:
    from ml_collections import config_flags

    values, argv = flags.FlagValues(), ["agentrl-train", f"--config={CONFIG}", *arguments]
    config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
    cli.parse(argv, values)
    return cli.experiment_from_flags(values)


def test_dotted_flags_reach_into_a_phase():
    experiment = parsed(
        "--config.phases.rl.steps=9",
        "--config.phases.rl.algorithm.optimizer.learning_rate=0.5",
        "--config.phases.sft.source.batch=4",
    )
    assert experiment.phases["rl"].steps == 9 and list(experiment.phases) == ["sft", "rl"]
    algorithm: Any = experiment.phases["rl"].algorithm
    source: Any = experiment.phases["sft"].source
    assert algorithm.optimizer.learning_rate == 0.5 and source.batch == 4


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--config.phases.polish.steps=9", "^the config has nothing called 'polish' there: see"),
        ("--config.phases.rl.stepz=9", "stepz"),
        ("--config.rl.steps=9", r"rl"),
        ("--config.phases.rl=9", r"phases\.rl"),
    ],
)
def test_a_flag_for_a_phase_that_does_not_exist_is_one_clear_sentence(argument: str, message: str):
    with pytest.raises(UserError, match=message) as caught:
        parsed(argument)
    assert "\n" not in str(caught.value)
