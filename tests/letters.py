"""A world that anybody can learn: each turn, say the letter that was shown."""

import gymnasium

from agentrl_jax.environment import Environment
from agentrl_jax.messages import user

LETTERS = "ab"


class Letters(Environment):
    rules = "Repeat the letter, three times."
    reward_bounds = (0.0, 1.0)

    def _reset(self, options):
        self.turn = 0
        return (self._show(),), {}

    def _show(self):
        self.letter = LETTERS[int(self.np_random.integers(len(LETTERS)))]
        return user(self.letter + "\n")

    def _step(self, text):
        right, self.turn = text == self.letter, self.turn + 1
        over = self.turn == 3
        return (self._show(),), float(right), over, False, {"success": right} if over else {}


def say_any(env, random):
    return LETTERS[int(random.integers(len(LETTERS)))]


def say_it(env, random):
    return env.letter


Letters.players = {"random": say_any, "expert": say_it}
if "tests/Letters-v0" not in gymnasium.registry:
    gymnasium.register("tests/Letters-v0", "letters:Letters")
