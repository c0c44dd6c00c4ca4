"""Named models of a config: whose weights they have, when they are loaded, what is refused."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support import letters_config
from support.fixtures import MeanEmbeddingConfig, MeanEmbeddingPolicy, unpacked_logp
from support.strategy_runs import KEY, RENDERER, TOKENIZER, ListEngine, make_runtime

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.pairwise.reward_model import RewardModelConfig
from agentrl_jax.algorithms.pairwise.reward_scorer import RewardModel
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.algorithms.policy_gradient.scoring import scoring_sequence
from agentrl_jax.context import FullHistory
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.remote_config import RemoteEngineConfig
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.messages import user
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import ByteTokenizer
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.config import AgentConfig, Experiment, Phase
from agentrl_jax.training.model_configs import (
    CurrentPolicy,
    Endpoint,
    FrozenPolicy,
    ModelContext,
    PretrainedModel,
    open_models,
)
from agentrl_jax.training.run import Run
from agentrl_jax.training.sources import Rollouts

POLICY = MeanEmbeddingPolicy(vocab_size=len(TOKENIZER))
INITIAL, TRAINED = (POLICY.init(jax.random.key(seed)) for seed in (0, 1))
HEAD = HeadConfig(layers=0, scale=1.0)
QUESTION = [user("right?\n")]


def experiment_with(**models: Any) -> Experiment:
    return Experiment(
        "t",
        MeanEmbeddingConfig(seed=0),
        ByteTokenizer(),
        models=models,
        phases={
            "sft": Phase("SFT", Rollouts(), grpo()),
            "reward": Phase("RM", Rollouts(), RewardModelConfig(HEAD)),
            "rl": Phase("RL", Rollouts(), grpo()),
        },
        engine=EngineConfig(positions=32),
    )


def save_checkpoint(folder: Path, params: Any) -> None:
    checkpointer = PhaseCheckpointer(folder)
    state = TrainState(step=jax.numpy.int32(1), params=params, opt_state=(), key=jax.random.key(0))
    checkpointer.save(1, state, {})
    checkpointer.close()


def open_in(runtime: Runtime, run_dir: Path, **models: Any) -> None:
    experiment, params = experiment_with(**models), {"policy": INITIAL}
    open_models(ModelContext(experiment, run_dir, runtime, TOKENIZER, FullHistory(), params))


def expected_score(params: Any, continuation: str = "yes") -> float:
    prompt = RENDERER.render(QUESTION).ids
    tokens = np.concatenate([prompt, RENDERER.codec.encode_plain(continuation)])
    is_scored = np.arange(len(tokens)) >= len(prompt)
    sequence = scoring_sequence(tokens, is_scored)
    return float(unpacked_logp(POLICY, params, sequence)[is_scored].sum())


def score(runtime: Runtime, name: str) -> float:
    (value,) = runtime.run(runtime.models.score(name, [QUESTION], ["yes"]))
    return value


def test_frozen_policies_have_the_initial_weights_or_those_of_a_phase(tmp_path: Path):
    with make_runtime(ListEngine()) as runtime:
        models = {"start": FrozenPolicy(), "tuned": FrozenPolicy("sft")}
        open_in(runtime, tmp_path, **models)
        agent = runtime.agents["tuned"]  # it can play at once; the weights are not there yet
        assert (agent.name, agent.engine, agent.trainable) == ("tuned", "tuned", False)
        with pytest.raises(UserError, match="there is no checkpoint"):
            score(runtime, "tuned")
        save_checkpoint(tmp_path / "checkpoints" / "sft", TRAINED)
        assert score(runtime, "start") == pytest.approx(expected_score(INITIAL), abs=1e-4)
        assert score(runtime, "tuned") == pytest.approx(expected_score(TRAINED), abs=1e-4)


def test_the_current_policy_scores_with_the_newest_published_weights(tmp_path: Path):
    with make_runtime(ListEngine()) as runtime:
        open_in(runtime, tmp_path, self=CurrentPolicy())
        assert score(runtime, "self") == pytest.approx(expected_score(INITIAL), abs=1e-4)
        runtime.publish(TRAINED, 1)
        assert score(runtime, "self") == pytest.approx(expected_score(TRAINED), abs=1e-4)
        assert "self" not in runtime.agents


def test_a_pretrained_model_has_weights_and_a_tokenizer_of_its_own(tmp_path: Path):
    model = PretrainedModel(MeanEmbeddingConfig(seed=5), ByteTokenizer(), AgentConfig(budget=7))
    with make_runtime(ListEngine()) as runtime:
        open_in(runtime, tmp_path, judge=model)
        params = POLICY.init(jax.random.key(5))
        assert score(runtime, "judge") == pytest.approx(expected_score(params), abs=1e-4)
        assert runtime.agents["judge"].sampling.budget == 7


def test_a_reward_model_scores_by_the_checkpoint_of_its_phase(tmp_path: Path):
    model = CriticConfig(HEAD).build_model(POLICY)
    params = model.init(jax.random.key(3))
    save_checkpoint(tmp_path / "checkpoints" / "reward", params)
    with make_runtime(ListEngine()) as runtime:
        open_in(runtime, tmp_path, reward=RewardModel("reward"))
        value = score(runtime, "reward")
    ids = RENDERER.codec.encode_plain("right?\nyes")[None]
    inputs = PolicyInputs(
        tokens=ids, positions=np.arange(ids.shape[1])[None], segment_ids=np.ones_like(ids)
    )
    hidden = POLICY.apply(params["trunk"], inputs).hidden
    values = np.asarray(model.head.apply(params["head"], hidden))
    assert value == pytest.approx(float(values[0, -1]), abs=1e-4)


def test_what_cannot_be_opened_is_refused_with_what_there_is(tmp_path: Path):
    endpoint = Endpoint(RemoteEngineConfig("http://127.0.0.1:1", "m", 32, api_key_variable="NO_K"))
    for models, message in (
        ({"policy": FrozenPolicy()}, "'policy' is an agent already"),
        ({"x": FrozenPolicy("reward")}, "that train 'policy' are sft, rl, and not 'reward'"),
        (
            {"x": RewardModel("sft")},
            "'sft' is no phase that trains a reward model",
        ),
        ({"x": FrozenPolicy(run_dir=str(tmp_path / "none"))}, "is no run folder"),
        ({"x": endpoint}, "NO_K should hold the API key"),
    ):
        with make_runtime(ListEngine()) as runtime, pytest.raises(UserError, match=message):
            open_in(runtime, tmp_path, **models)


def test_an_endpoint_plays_and_scores_and_is_not_contacted_before(tmp_path: Path):
    server = RemoteEngineConfig("http://127.0.0.1:1", "m", 32, retries=0)
    with make_runtime(ListEngine()) as runtime:
        open_in(runtime, tmp_path, judge=Endpoint(server))
        assert runtime.agents["judge"].engine == "judge"
        for request in (
            runtime.models.ask("judge", QUESTION, KEY),
            runtime.models.score("judge", [QUESTION], ["yes"]),
        ):
            with pytest.raises(EnvironmentFailure, match="failed 1 times"):
                runtime.run(request)


def test_a_named_model_follows_the_weights_of_every_phase(tmp_path: Path):
    experiment = letters_config.get_config()
    experiment.models = {"self": CurrentPolicy()}
    with Run(experiment, tmp_path / "run", quiet=True) as run:
        (of_run,) = run.runtime.publish_callbacks
        run.begin_phase("sft")
        run.runtime.publish_callbacks.append(lambda params, version, engine: None)
        run.end_phase()
        assert run.runtime.publish_callbacks == [of_run]
