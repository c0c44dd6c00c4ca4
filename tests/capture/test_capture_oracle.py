"""The project's own engine behind its own endpoint as the oracle of a world."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from served import AGENT, Speaker, local_engine, served

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.environment import make
from agentrl_jax.messages import texts

ORACLE = dataclasses.replace(AGENT, name="oracle", trainable=False)  # only one that is not trained may be asked greedily


def answers(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What the oracle says to two questions of Twenty Questions."""
    with served(engine, agents={"policy": ORACLE}) as here:
        session = here.session()
        monkeypatch.setenv("ORACLE_KEY", session.secret)
        oracle = {"url": f"{here.server.url_of(session)}/v1", "model": "policy", "api_key_variable": "ORACLE_KEY"}
        env = make("agentrl/TwentyQuestions-v0", {"oracle": oracle})
        env.reset(seed=0)
        for question in ("Can it fly?", "Can it swim?"):
            yield texts(env.step(question)[0])[0]


def test_what_an_engine_says_is_the_oracles_answer(monkeypatch):
    assert list(answers(Speaker("yes", "no"), monkeypatch)) == ["Yes.\n", "No.\n"]


@pytest.mark.slow
def test_an_engine_of_this_project_can_be_the_oracle(monkeypatch):
    engine = local_engine(positions=512)
    assert set(answers(engine, monkeypatch)) <= {"Yes.\n", "No.\n"}
    engine.close()
