"""A local engine behind the capture endpoint as the oracle of an environment."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.capture_server import AGENT, LineEngine, capture_fixture, local_engine

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.environment import make
from agentrl_jax.messages import texts

# Only an agent that is not trained may be sampled greedily.
ORACLE = dataclasses.replace(AGENT, name="oracle", trainable=False)


def answers(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The oracle's answers to two questions of Twenty Questions."""
    with capture_fixture(engine, agents={"policy": ORACLE}) as capture:
        session = capture.session()
        monkeypatch.setenv("ORACLE_KEY", session.secret)
        oracle = {
            "url": f"{capture.server.url_of(session)}/v1",
            "model": "policy",
            "api_key_variable": "ORACLE_KEY",
        }
        env = make("agentrl/TwentyQuestions-v0", {"oracle": oracle})
        env.reset(seed=0)
        for question in ("Can it fly?", "Can it swim?"):
            yield texts(env.step(question)[0])[0]


def test_the_oracles_answer_is_what_the_engine_writes(monkeypatch):
    assert list(answers(LineEngine("yes", "no"), monkeypatch)) == ["Yes.\n", "No.\n"]


@pytest.mark.slow
def test_an_engine_of_this_project_can_be_the_oracle(monkeypatch):
    engine = local_engine(positions=512)
    assert set(answers(engine, monkeypatch)) <= {"Yes.\n", "No.\n"}
    engine.close()
