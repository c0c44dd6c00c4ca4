"""`Wordle`: find a five-letter word in six guesses (LMRL-Gym, arXiv 2311.18232)."""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

TRIES = 6
LETTERS = 5
PATTERNS = 3**LETTERS
# The answer of pattern `code`: sum over places of mark * 3**place, with marks b = 0, y = 1, g = 2.
ANSWERS = tuple(" ".join(reversed(marks)) + "\n" for marks in product("byg", repeat=LETTERS))


@cache
def word_list() -> tuple[str, ...]:
    """The 431 words that are both targets and legal guesses, the most suitable for small tasks first."""
    return tuple(files("agentrl_jax.envs.lmrl").joinpath("words.txt").read_text(encoding="ascii").split())


@cache
def _places() -> Mapping[str, int]:
    return MappingProxyType({word: place for place, word in enumerate(word_list())})


@cache
def feedback_table(official_duplicates: bool = False) -> np.ndarray:
    """The pattern code of every guess (row) against every target (column) of the list: uint8 [words, words].

    LMRL-Gym marks each letter by itself: g where the target has it at this place, y where the target has it anywhere, else b.
    The official rule spends each letter of the target once, on greens first, then on yellows from the left:
    the guess "geese" for the target "eagle" reads "y y b b g", not "y y y b g".
    """
    letters = np.array([list(word.encode()) for word in word_list()], np.uint8)
    same = letters[:, None, :, None] == letters[None, :, None, :]  # [guesses, targets, places of guess, places of target]
    green = np.diagonal(same, axis1=2, axis2=3)  # [guesses, targets, places]
    yellow = same.any(axis=-1)
    if official_duplicates:
        unspent = (same & ~green[:, :, None, :]).sum(axis=-1)  # copies of this place's letter that no green has spent
        before = np.tril(letters[:, :, None] == letters[:, None, :], -1)  # [guesses, places, earlier places of the same letter]
        rivals = np.einsum("gij,gtj->gti", before.astype(np.uint8), (~green).astype(np.uint8))
        yellow = unspent > rivals
    table = (np.where(green, 2, yellow) * 3 ** np.arange(LETTERS)).sum(axis=-1).astype(np.uint8)
    table.setflags(write=False)
    return table


def spelled(word: str) -> str:
    """A word as an action: "s l a t e"."""
    return " ".join(word)


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform word of the list."""
    assert isinstance(env, Wordle)
    return spelled(env.words[rng.integers(len(env.words))])


def _consistent(env: Environment, rng: np.random.Generator) -> str:
    """A uniform word among those that the answers so far allow."""
    assert isinstance(env, Wordle)
    return spelled(env.words[rng.choice(np.flatnonzero(env.consistent()))])


# Mean returns that score 0, 50 and 100. LMRL-Gym's for its 431 words; for a shorter list its kind of data policy (`mixture`,
# 20,000 games) and the expert (every target), measured here.
ANCHORS = {431: (-6.0, -4.121715, -1.935), 256: (-6.0, -3.89, -1.742), 128: (-6.0, -3.61, -1.625), 64: (-6.0, -3.33, -1.422)}


def mixture(prob_smart: float = 0.33) -> Player:
    """LMRL-Gym's data policy: with `prob_smart` a uniform consistent word, else a uniform word of the list.

    The default's mean return on 431 words is that of LMRL-Gym's data set, about -4.12.
    """
    return Mixed(_consistent, _random, prob_smart)


@lru_cache(maxsize=8192)
def _most_informative(consistent: bytes, last: bool, official_duplicates: bool) -> int:
    """The guess whose answer tells most about the target; ties go to a consistent word, then to list order."""
    alive = np.frombuffer(consistent, bool)
    targets = np.flatnonzero(alive)
    guesses = targets if last or len(targets) <= 2 else np.arange(len(alive))
    codes = feedback_table(official_duplicates)[np.ix_(guesses, targets)] + PATTERNS * np.arange(len(guesses))[:, None]
    counts = np.bincount(codes.ravel(), minlength=PATTERNS * len(guesses)).reshape(-1, PATTERNS)
    sizes = np.arange(len(targets) + 1)
    # The entropy of the target given the answer is sum(n log n) / targets; rounding makes equal sums equal.
    remaining = np.round((sizes * np.log(np.maximum(sizes, 1)))[counts].sum(axis=1), 9)
    best = guesses[remaining == remaining.min()]
    return int(best[np.argmax(alive[best])])


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Greedy information gain over all words of the list, and over the consistent ones at the last try."""
    assert isinstance(env, Wordle)
    last = len(env.guesses) == TRIES - 1
    return spelled(env.words[_most_informative(env.consistent().tobytes(), last, env.official_duplicates)])


class Wordle(Rewindable):
    """A word of five letters is to be found in six guesses; the list of targets is the list of legal guesses.

    The history reads "Wordle:\\n", "s l a t e\\n", "b b y b b\\n", ... . An action's spaces are removed, like white space at
    its ends; what is left must be a word of the list. The reward is 0 for the target, which ends the episode, and -1 for
    any other word; anything else is answered "\\n", costs a try and earns `bad_word_reward` (LMRL-Gym: -1 to evaluate, -10
    to train). After the sixth try the episode has terminated. `info["legal"]` says whether the guess was a word.

    `words` keeps only the first so many words; `official_duplicates` plays the official rule for repeated letters. Reset
    option `target` names the word to find. Raises UserError where an option is unknown or out of range.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "consistent": _consistent, "mixture": mixture(), "expert": _expert}
    )

    def __init__(
        self,
        words: int | None = None,
        bad_word_reward: float = -1.0,
        official_duplicates: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        count = len(word_list()) if words is None else words
        if not 1 <= count <= len(word_list()):
            raise UserError(f"words must be between 1 and {len(word_list())}, not {words}")
        self.words = word_list()[:count]
        self.bad_word_reward = float(bad_word_reward)
        self.official_duplicates = official_duplicates
        self.reward_bounds = (min(-1.0, self.bad_word_reward), max(0.0, self.bad_word_reward))
        if bad_word_reward == -1 and not official_duplicates:
            self.score_anchors = ANCHORS.get(count)
        self.rules = (
            f"Find a secret five-letter word in {TRIES} guesses. Write the letters with spaces between them, like this: s l a t e\n"
            "The answer marks each letter: g if it is at the right place, y if the word has it at another place, b if not.\n"
            + ("A letter is marked g or y no more often than the word has it.\n" if official_duplicates else "")
            + f"Only the {count} common words of the list count; any other text costs a try and is answered by an empty line."
        )
        self._target = 0
        self.guesses: tuple[int | None, ...] = ()  # places in the list; None where the text was no word of it

    @property
    def target(self) -> str:
        """The word to find."""
        return self.words[self._target]

    def consistent(self) -> np.ndarray:
        """Which words the answers so far allow: bool [words]."""
        table = feedback_table(self.official_duplicates)[: len(self.words), : len(self.words)]
        allowed = np.ones(len(self.words), bool)
        for guess in self.guesses:
            if guess is not None:
                allowed &= table[guess] == table[guess, self._target]
        return allowed

    def _place(self, word: Any) -> int | None:
        place = _places().get(word) if isinstance(word, str) else None
        return place if place is not None and place < len(self.words) else None

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"target"}:
            raise UserError(f"Wordle has no reset option {sorted(unknown)}; it has: target")
        if "target" in options:
            place = self._place(options["target"])
            if place is None:
                raise UserError(f"target must be one of the {len(self.words)} words, not {options['target']!r}")
        else:
            place = int(self.np_random.integers(len(self.words)))
        self._target = place
        self._rewind()
        return (user("Wordle:\n"),), {}

    def _rewind(self) -> None:
        self.guesses = ()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        guess = self._place(text.strip().replace(" ", ""))
        self.guesses = (*self.guesses, guess)
        info: dict[str, Any] = {"legal": guess is not None}
        if guess is None:
            answer, reward = "\n", self.bad_word_reward
        else:
            answer = ANSWERS[feedback_table(self.official_duplicates)[guess, self._target]]
            reward = 0.0 if guess == self._target else -1.0
        done = guess == self._target or len(self.guesses) == TRIES
        if done:
            info["success"] = guess == self._target
        return (user(answer),), reward, done, False, info
