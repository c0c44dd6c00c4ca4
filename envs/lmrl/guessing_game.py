"""`GuessingGame`: find a hidden target by questions to an oracle."""

from typing import Any

from agentrl_jax.environment import Messages
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.lmrl.oracles import Oracle
from agentrl_jax.messages import user

HORIZON = 20


class GuessingGame(Forkable):
    """At most 20 questions; the right guess earns 0 and ends the episode, any other text earns -1.

    Subclasses set `oracle`, sample the target at `reset` and define `target` and
    `_is_correct_guess`.
    """

    reward_bounds = (-1.0, 0.0)
    oracle: Oracle
    question_answers: tuple[tuple[str, str], ...] = ()  # (question, answer) so far

    @property
    def target(self) -> str:
        """The hidden target, in the form that the oracle takes."""
        raise NotImplementedError(f"{type(self).__name__} must define target")

    def _is_correct_guess(self, question: str, answer: str) -> bool:
        raise NotImplementedError(f"{type(self).__name__} must define _is_correct_guess")

    def _open_episode(self) -> tuple[Messages, dict[str, Any]]:
        """The opening, after the target was sampled."""
        self._rewind()
        return (user("Questions:\n"),), {}

    def _rewind(self) -> None:
        self.question_answers = ()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        question = text.strip()
        answer = self.oracle.answer(self.target, question)
        self.question_answers = (*self.question_answers, (question, answer))
        guessed = self._is_correct_guess(question, answer)
        done = guessed or len(self.question_answers) == HORIZON
        return (
            (user(answer + "\n"),),
            0.0 if guessed else -1.0,
            done,
            False,
            {"success": guessed} if done else {},
        )
