"""Whoever reads a checkpoint reads it into the shards of its own devices: no device ever holds a
large array whole.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from support.fixtures import MeanEmbeddingConfig, ScriptedEngine, device_mesh, trees_equal
from support.strategy_runs import RENDERER, TOKENIZER, ListEngine, make_runtime

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.pairwise.reward_model import RewardModelConfig
from agentrl_jax.algorithms.pairwise.reward_scorer import RewardModel
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.context import FullHistory
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.launch import players, serving
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.messages import user
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import ByteTokenizer
from agentrl_jax.policy import Params
from agentrl_jax.storage import config_json
from agentrl_jax.training import agent_models
from agentrl_jax.training.agent_models import AgentModel
from agentrl_jax.training.builders import load_policy
from agentrl_jax.training.config import AgentConfig, EnvironmentConfig, Experiment, Phase
from agentrl_jax.training.model_configs import FrozenPolicy, ModelContext, open_models
from agentrl_jax.training.replay import PhaseWeights
from agentrl_jax.training.run import Run
from agentrl_jax.training.sources import Rollouts

SMALL_BYTES = 256  # of an array that may be whole on a device
HEAD = HeadConfig(layers=0, scale=1.0)
EXPERIMENT = Experiment(
    "sharded",
    MeanEmbeddingConfig(width=16, vocabulary_multiple=8),
    ByteTokenizer(),
    environment=EnvironmentConfig("support.letter_task:tests/Letters-v0", workers=0),
    agent=AgentConfig(budget=1),
    phases={
        "sft": Phase("SFT", Rollouts(), grpo()),
        "reward": Phase("RM", Rollouts(), RewardModelConfig(HEAD)),
        "rl": Phase("RL", Rollouts(), grpo()),
    },
    models={"judge": FrozenPolicy("sft"), "reward": RewardModel("reward")},
    engine=EngineConfig(rows=8, positions=32, mesh=MeshConfig(data=1, tensor=8)),
)
POLICY = EXPERIMENT.policy.build(len(TOKENIZER))
SAVED = POLICY.init(jax.random.key(1))

Restored = list[tuple[tuple[int, ...], int, Any]]  # shape, bytes and sharding of each array


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a checkpoint of each phase."""
    folder = tmp_path_factory.mktemp("sharded")
    config_json.bind_run_dir(folder, EXPERIMENT)
    TOKENIZER.save_pretrained(folder / "tokenizer")
    reward = CriticConfig(HEAD).build_model(POLICY).init(jax.random.key(3))
    for name, params in (("sft", SAVED), ("reward", reward), ("rl", SAVED)):
        checkpointer = PhaseCheckpointer(folder / "checkpoints" / name)
        state = TrainState(
            step=jax.numpy.int32(1), params=params, opt_state=(), key=jax.random.key(0)
        )
        checkpointer.save(1, state, {})
        checkpointer.close()
    return folder


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Restored:
    """Gets an entry for each array that Orbax restores: what it is asked for, and its result."""
    restore, arrays = ocp.PyTreeCheckpointer.restore, Restored()

    def record(self: Any, path: Any, args: Any) -> Any:
        tree = restore(self, path, args=args)
        for requested, x in zip(
            jax.tree.leaves(args.restore_args), jax.tree.leaves(tree), strict=True
        ):
            assert requested.sharding == x.sharding
            arrays.append((x.shape, x.nbytes, x.sharding))
        return tree

    monkeypatch.setattr(ocp.PyTreeCheckpointer, "restore", record)
    return arrays


def load_for_export(run_dir: Path) -> Params:
    return load_policy(run_dir)[3]


def load_for_serving(run_dir: Path) -> Params:
    return serving.served_from_run(run_dir, None, None, 0, 0).params


def load_for_evaluation(run_dir: Path) -> Params:
    """What the engine gets that plays the episodes of `agentrl-evaluate` and `agentrl-play`."""
    published: list[Params] = []

    def make_engine(policy: Any, config: Any, params: Params, *_: Any) -> ScriptedEngine:
        published.append(params)
        return ScriptedEngine(RENDERER, "a")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_models, "make_engine", make_engine)
        checkpoint = players.Checkpoint(run_dir)
        players.play_episodes(EXPERIMENT.environment, None, checkpoint, 1, 0, 1.0)
    return published[0]


def load_for_replay(run_dir: Path) -> Params:
    return PhaseWeights(EXPERIMENT, run_dir, "rl", "policy").load(1, POLICY)


def load_start_for_replay(run_dir: Path) -> Params:
    return PhaseWeights(EXPERIMENT, run_dir, "rl", "policy").load(0, POLICY)


def load_start_of_phase(run_dir: Path) -> Params:
    """The weights of a phase that starts with those of another one."""
    run: Any = object.__new__(Run)
    run.experiment, run.run_dir, run.process_group = EXPERIMENT, run_dir, ProcessGroup()
    run.mesh = device_mesh(data=2, fsdp=2, tensor=2)
    run.models = {"policy": AgentModel(None, POLICY, POLICY.init(jax.random.key(0)))}  # type: ignore
    return run.start_params(Phase("RL", Rollouts(), grpo(), start="sft"), {"policy": None})


CALLERS: tuple[Callable[[Path], Params], ...] = (
    load_for_export,
    load_for_serving,
    load_for_evaluation,
    load_for_replay,
    load_start_for_replay,
    load_start_of_phase,
)


def assert_sharded(restored: Restored) -> None:
    large = [(shape, sharding) for shape, size, sharding in restored if size > SMALL_BYTES]
    assert len(large) >= 2
    for shape, sharding in large:
        assert math.prod(sharding.shard_shape(shape)) <= math.prod(shape) // 2, (shape, sharding)
        assert len(sharding.device_set) == 8


@pytest.mark.parametrize("load", CALLERS, ids=[load.__name__ for load in CALLERS])
def test_a_checkpoint_is_read_into_shards(
    load: Callable[[Path], Params], run_dir: Path, restored: Restored
):
    params = load(run_dir)
    assert_sharded(restored)
    assert trees_equal(params, SAVED)
    assert [x.sharding for x in jax.tree.leaves(params)] == [x for _, _, x in restored]


@pytest.mark.parametrize("name", ["judge", "reward"])
def test_a_named_model_is_read_into_the_shards_of_its_engine(
    name: str, run_dir: Path, restored: Restored
):
    with make_runtime(ListEngine()) as runtime:
        context = ModelContext(EXPERIMENT, run_dir, runtime, TOKENIZER, FullHistory(), {})
        open_models(context)
        assert restored == []
        (value,) = runtime.run(runtime.models.score(name, [[user("right?\n")]], ["yes"]))
    assert np.isfinite(value)
    assert_sharded(restored)


def test_on_one_device_an_array_is_whole(run_dir: Path, restored: Restored):
    mesh = device_mesh()
    params = load_policy(run_dir, mesh=mesh)[3]
    assert trees_equal(params, SAVED)
    for shape, _, sharding in restored:
        assert sharding.shard_shape(shape) == shape
        assert sharding.device_set == {jax.devices()[0]}
