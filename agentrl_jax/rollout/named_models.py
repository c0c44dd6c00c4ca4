"""`NamedModels`: messages and scores of a run's models, outside of an episode's turns."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agentrl_jax.engine import Engine, Scorer
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.images.prompts import refuse_images
from agentrl_jax.messages import Message
from agentrl_jax.renderer import Renderer, TokenIds
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.call_sampling import sample_call
from agentrl_jax.timeouts import Timeouts, time_limit
from agentrl_jax.trajectories import RandomKey, Sampling, Trajectory, starts_with


@dataclass(frozen=True)
class Model:
    """What a named model of a run can do."""

    agent: Agent  # renders the messages
    engine: Engine | None = None  # None: it can neither play nor be asked for messages
    scorer: Scorer | None = None  # None: it cannot score


@runtime_checkable
class ModelConfig(Protocol):
    """A dataclass that describes a named model (`Experiment.models`, docs/judges.md)."""

    def open(self, name: str, run: Any) -> Model:
        """The model under its name; `run` is the `ModelContext` (`training.model_configs`).

        Weights are loaded at the first use, since a phase that comes later may train them.
        """
        ...


class NamedModels:
    """The models of a runtime: its agents, which write messages, and its scorers.

    A model that fails or is late raises EnvironmentFailure. Within an episode that is a failed
    attempt, as if the environment had failed; elsewhere the caller drops the episode and counts it
    (`Failures`). It is never a reward of 0.
    """

    def __init__(
        self, agents: Mapping[str, Agent], engines: Mapping[str, Engine], timeouts: Timeouts
    ) -> None:
        """`agents` and `engines` are those of the runtime, which may add to them later."""
        self._agents, self._engines, self._timeouts = agents, engines, timeouts
        self._scorers: dict[str, tuple[Renderer, Scorer]] = {}
        # Of each engine. They are not the slots of episodes: an episode that holds one of those may
        # ask, also the model that plays it.
        self._slots: dict[str, asyncio.Semaphore] = {}

    def add_scorer(self, name: str, renderer: Renderer, scorer: Scorer) -> None:
        """Add a named scorer; the renderer is that of its texts."""
        self._scorers[name] = renderer, scorer

    async def ask(
        self,
        name: str,
        messages: Sequence[Message],
        key: RandomKey,
        sampling: Sampling | None = None,
        seconds: float | None = None,
    ) -> Message:
        """An agent's answer to some messages.

        Args:
            name: Of the agent; the policy itself is "policy".
            messages: All that it sees.
            key: Of the answer's random numbers.
            sampling: In place of the agent's; without stop ids it has the renderer's.
            seconds: The longest wait for the answer; None: that for a turn.

        Raises:
            UserError: there is no agent of that name.
            EnvironmentFailure: the engine failed or was late, or the messages fill its context.
        """
        agent = self._agent(name)
        engine, sampling = self._engines[agent.engine], sampling or agent.sampling
        if not sampling.stop_ids:
            sampling = dataclasses.replace(sampling, stop_ids=agent.renderer.stop_ids)
        slots = self._slots.setdefault(agent.engine, asyncio.Semaphore(engine.num_slots))
        ids, timeout = agent.renderer.render(messages).text_ids, seconds or self._timeouts.turn
        async with slots:
            call = await sample_call(engine, ids, sampling, key, None, timeout, agent.engine)
        engine.release(call)
        if len(call.action) == 0:
            raise EnvironmentFailure(
                f"the model {name!r} has no room for an answer to {len(ids)} tokens", "malformed"
            )
        return agent.renderer.parse(call.action)

    async def write_note(
        self, name: str, messages: Sequence[Message], key: RandomKey, budget: int
    ) -> Message:
        """A `NoteWriter`: an answer of at most `budget` tokens; 0: the agent's own budget."""
        agent = self._agent(name)
        sampling = dataclasses.replace(agent.sampling, budget=budget or agent.sampling.budget)
        return await self.ask(name, messages, key, sampling)

    def _agent(self, name: str) -> Agent:
        if name not in self._agents:
            raise UserError(
                f"no model called {name!r} writes messages; {', '.join(self._agents)} do: add it "
                "to config.models"
            )
        return self._agents[name]

    async def score(
        self,
        name: str,
        prompts: Sequence[Sequence[Message]],
        continuations: Sequence[str],
        seconds: float | None = None,
    ) -> list[float]:
        """The score of each continuation of its prompt: log P(continuation | prompt) of a language
        model, without a stop token, or what a reward model says of both.

        Args:
            name: Of a model that can score.
            prompts: Each is all messages before the continuation.
            continuations: The beginning of the next message, or all of it.
            seconds: The longest wait for a score; None: that for a turn.

        Raises:
            UserError: no model of that name can score, or a text is too long for it.
            DeadlineExceeded: a score is late.
        """
        renderer, scorer = self._scorer(name)
        requests = []
        for messages, text in zip(prompts, continuations, strict=True):
            prompt, continuation = (
                renderer.render(messages).text_ids,
                renderer.codec.encode_plain(text),
            )
            tokens = np.concatenate([prompt, continuation])
            requests.append((tokens, np.arange(len(tokens)) >= len(prompt)))
        return await self._submit_all(name, scorer, requests, seconds)

    async def score_trajectories(
        self, name: str, trajectories: Sequence[Trajectory], seconds: float | None = None
    ) -> list[float]:
        """The score of each trajectory, by its recorded tokens: log P(actions) of a language model,
        a reward model's score at the last action.

        Raises as `score`, and UserError where the model has another tokenizer than the agent that
        played, or a trajectory is more than one context.
        """
        renderer, scorer = self._scorer(name)
        requests = []
        for trajectory in trajectories:
            player = self._agents.get(trajectory.agent)
            if player is None or not _same_tokenizer(player.renderer, renderer):
                raise UserError(
                    f"the model {name!r} has another tokenizer than the agent "
                    f"{trajectory.agent!r}: score the messages of its trajectories instead"
                )
            requests.append(_recorded_tokens(trajectory))
        return await self._submit_all(name, scorer, requests, seconds)

    def _scorer(self, name: str) -> tuple[Renderer, Scorer]:
        if name not in self._scorers:
            names = ", ".join(self._scorers) or "none can"
            raise UserError(
                f"no model called {name!r} can score ({names}): add it to config.models"
            )
        return self._scorers[name]

    async def _submit_all(
        self,
        name: str,
        scorer: Scorer,
        requests: Sequence[tuple[np.ndarray, np.ndarray]],
        seconds: float | None,
    ) -> list[float]:
        timeout = seconds or self._timeouts.turn
        futures = [asyncio.wrap_future(scorer.submit(*request)) for request in requests]
        try:
            async with time_limit(timeout, f"a score of the model {name!r}"):
                return list(await asyncio.gather(*futures))
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Stop the scorers."""
        for _, scorer in self._scorers.values():
            scorer.close()


def _same_tokenizer(a: Renderer, b: Renderer) -> bool:
    """Whether ids of one are ids of the other."""
    first: Any = a.codec.tokenizer
    second: Any = b.codec.tokenizer
    return first is second or first.get_vocab() == second.get_vocab()


def _recorded_tokens(trajectory: Trajectory) -> tuple[TokenIds, np.ndarray]:
    """The tokens of a trajectory up to its last action, and which of them are actions."""
    calls = trajectory.calls
    refuse_images(calls, "a model that scores trajectories")
    tokens = calls[-1].ids if calls else np.zeros(0, np.int32)
    is_action = np.zeros(len(tokens), bool)
    for call in calls:
        if not starts_with(tokens, call.ids):
            raise UserError(
                "a model scores a trajectory as one context: keep the whole history in it, or "
                "score its messages instead"
            )
        is_action[len(call.prompt) : len(call.ids)] = True
    if not calls:
        raise UserError(f"a trajectory of {trajectory.task!r} has no calls to score")
    return tokens, is_action
