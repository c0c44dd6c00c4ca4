"""An easy environment: each turn, the action must repeat the letter of the observation."""

import gymnasium

from agentrl_jax.environment import Environment
from agentrl_jax.messages import user

LETTERS = "ab"


class LetterEnvironment(Environment):
    rules = "Repeat the letter, three times."
    reward_bounds = (0.0, 1.0)

    def _reset(self, options):
        self.turn = 0
        return (self._next_letter(),), {}

    def _next_letter(self):
        self.letter = LETTERS[int(self.np_random.integers(len(LETTERS)))]
        return user(self.letter + "\n")

    def _step(self, text):
        correct, self.turn = text == self.letter, self.turn + 1
        done = self.turn == 3
        info = {"success": correct} if done else {}
        return (self._next_letter(),), float(correct), done, False, info


def random_letter(env, random):
    return LETTERS[int(random.integers(len(LETTERS)))]


def shown_letter(env, random):
    return env.letter


LetterEnvironment.scripted_policies = {"random": random_letter, "expert": shown_letter}
if "tests/Letters-v0" not in gymnasium.registry:
    gymnasium.register("tests/Letters-v0", "support.letter_task:LetterEnvironment")
