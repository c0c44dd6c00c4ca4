"""`Questions`: something hidden is to be found by questions to an oracle."""

from typing import Any

from agentrl_jax.environment import Messages
from agentrl_jax.envs.lmrl.oracles import Oracle
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.messages import user

HORIZON = 20


class Questions(Rewindable):
    """At most 20 questions; each earns -1 but the one that finds it, which earns 0 and ends the episode.

    Subclasses set `oracle`, draw what is hidden at a reset, name it (`target`), and say which question finds it (`_found`).
    """

    reward_bounds = (-1.0, 0.0)
    oracle: Oracle
    asked: tuple[tuple[str, str], ...] = ()  # questions and answers

    @property
    def target(self) -> str:
        """What is hidden, as the oracle is told it."""
        raise NotImplementedError(f"{type(self).__name__} must define target")

    def _found(self, question: str, answer: str) -> bool:
        raise NotImplementedError(f"{type(self).__name__} must define _found")

    def _begin(self) -> tuple[Messages, dict[str, Any]]:
        """The opening, once what is hidden is drawn."""
        self._rewind()
        return (user("Questions:\n"),), {}

    def _rewind(self) -> None:
        self.asked = ()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        question = text.strip()
        answer = self.oracle.answer(self.target, question)
        self.asked = (*self.asked, (question, answer))
        found = self._found(question, answer)
        done = found or len(self.asked) == HORIZON
        return (user(answer + "\n"),), 0.0 if found else -1.0, done, False, {"success": found} if done else {}
