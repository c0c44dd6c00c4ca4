"""`Wordle`: find a five-letter word in six guesses (LMRL-Gym, arXiv 2311.18232)."""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.lmrl.phrases import spell_out
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

MAX_GUESSES = 6
WORD_LENGTH = 5
NUM_PATTERNS = 3**WORD_LENGTH
# By pattern code: sum over positions of mark * 3**position, with marks b = 0, y = 1, g = 2.
FEEDBACK_TEXTS = tuple(
    " ".join(reversed(marks)) + "\n" for marks in product("byg", repeat=WORD_LENGTH)
)


@cache
def word_list() -> tuple[str, ...]:
    """The 431 words that are both targets and legal guesses; the first ones suit small tasks."""
    return tuple(
        files("agentrl_jax.envs.lmrl").joinpath("words.txt").read_text(encoding="ascii").split()
    )


@cache
def _word_indices() -> Mapping[str, int]:
    return MappingProxyType({word: index for index, word in enumerate(word_list())})


@cache
def feedback_table(official_duplicates: bool = False) -> np.ndarray:
    """The pattern code of every guess (row) against every target (column): uint8 [words, words].

    LMRL-Gym marks each letter by itself: g where the target has it at this position, y where the
    target has it anywhere, else b. The official rule spends each letter of the target once, on
    greens first, then on yellows from the left: the guess "geese" for the target "eagle" reads "y y
    b b g", not "y y y b g".
    """
    letters = np.array([list(word.encode()) for word in word_list()], np.uint8)
    # [guesses, targets, positions of the guess, positions of the target]
    same = letters[:, None, :, None] == letters[None, :, None, :]
    green = np.diagonal(same, axis1=2, axis2=3)  # [guesses, targets, positions]
    yellow = same.any(axis=-1)
    if official_duplicates:
        # Copies in the target of each position's letter that no green has spent.
        unspent = (same & ~green[:, :, None, :]).sum(axis=-1)
        # [guesses, positions, earlier positions of the same letter]
        before = np.tril(letters[:, :, None] == letters[:, None, :], -1)
        rivals = np.einsum("gij,gtj->gti", before.astype(np.uint8), (~green).astype(np.uint8))
        yellow = unspent > rivals
    table = (np.where(green, 2, yellow) * 3 ** np.arange(WORD_LENGTH)).sum(axis=-1).astype(np.uint8)
    table.setflags(write=False)
    return table


def _random_action(env: "Wordle", rng: np.random.Generator) -> str:
    """A uniform word of the list."""
    return spell_out(env.words[rng.integers(len(env.words))])


def _consistent_action(env: "Wordle", rng: np.random.Generator) -> str:
    """A uniform word among those that the answers so far allow."""
    return spell_out(env.words[rng.choice(np.flatnonzero(env.consistent_mask()))])


# Mean returns that score 0, 50 and 100, by list size. LMRL-Gym's for its 431 words; for a shorter
# list `mixture` (20,000 games) and the expert (every target), measured here.
ANCHORS = {
    431: (-6.0, -4.121715, -1.935),
    256: (-6.0, -3.89, -1.742),
    128: (-6.0, -3.61, -1.625),
    64: (-6.0, -3.33, -1.422),
}


# Uniform over consistent words with this probability, else over the whole list: LMRL-Gym's data
# policy. Its mean return on 431 words is that of LMRL-Gym's dataset, about -4.12.
DATA_POLICY = MixturePolicy(_consistent_action, _random_action, 0.33)


@lru_cache(maxsize=8192)
def _most_informative_guess(consistent: bytes, is_last: bool, official_duplicates: bool) -> int:
    """The guess with the greatest information gain.

    Ties go to a consistent word, then to the order of the list.
    """
    alive = np.frombuffer(consistent, bool)
    targets = np.flatnonzero(alive)
    guesses = targets if is_last or len(targets) <= 2 else np.arange(len(alive))
    codes = (
        feedback_table(official_duplicates)[np.ix_(guesses, targets)]
        + NUM_PATTERNS * np.arange(len(guesses))[:, None]
    )
    counts = np.bincount(codes.ravel(), minlength=NUM_PATTERNS * len(guesses)).reshape(
        -1, NUM_PATTERNS
    )
    sizes = np.arange(len(targets) + 1)
    # The target's entropy given the answer is sum(n log n) / targets; rounding makes ties exact.
    remaining = np.round((sizes * np.log(np.maximum(sizes, 1)))[counts].sum(axis=1), 9)
    best = guesses[remaining == remaining.min()]
    return int(best[np.argmax(alive[best])])


def _expert_action(env: "Wordle", rng: np.random.Generator) -> str:
    """Greedy information gain over all words; over the consistent ones in the last guess."""
    last = len(env.guesses) == MAX_GUESSES - 1
    return spell_out(
        env.words[
            _most_informative_guess(env.consistent_mask().tobytes(), last, env.official_duplicates)
        ]
    )


class Wordle(Forkable):
    """Find a word of five letters in six guesses; targets and legal guesses are the same list.

    The history reads "Wordle:\\n", "s l a t e\\n", "b b y b b\\n", ... . Spaces in an action and
    white space at its ends are removed. The target earns 0 and ends the episode, any other word of
    the list -1; anything else is answered by "\\n", costs a guess and earns `bad_word_reward`. The
    sixth guess terminates the episode. `info["legal"]` is whether the guess was a word.

    Scripted policies: `random` (uniform over the list), `consistent` (uniform over the words that
    the answers allow), `mixture` (LMRL-Gym's data policy) and `expert` (greedy information gain).
    Reset option: `target`, the word to find.

    Args:
        words: only the first `words` words of the list; default: all.
        bad_word_reward: reward of an illegal guess; LMRL-Gym evaluates with -1 and trains with -10.
        official_duplicates: whether repeated letters are marked by the official rule.

    Raises:
        UserError: an option is unknown or out of range.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "consistent": _consistent_action,
            "mixture": DATA_POLICY,
            "expert": _expert_action,
        }
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
            f"Find a secret five-letter word in {MAX_GUESSES} guesses. Write the letters with "
            "spaces between them, like this: s l a t e\n"
            "The answer marks each letter: g if it is at the right place, y if the word has it at "
            "another place, b if not.\n"
            + (
                "A letter is marked g or y no more often than the word has it.\n"
                if official_duplicates
                else ""
            )
            + f"Only the {count} common words of the list count; any other text costs a try and "
            "is answered by an empty line."
        )
        self._target_index = 0
        # Indices into the list; None where the text was not one of its words.
        self.guesses: tuple[int | None, ...] = ()

    @property
    def target(self) -> str:
        """The word to find."""
        return self.words[self._target_index]

    def consistent_mask(self) -> np.ndarray:
        """Which words the answers so far allow: bool [words]."""
        table = feedback_table(self.official_duplicates)[: len(self.words), : len(self.words)]
        allowed = np.ones(len(self.words), bool)
        for guess in self.guesses:
            if guess is not None:
                allowed &= table[guess] == table[guess, self._target_index]
        return allowed

    def _word_index(self, word: Any) -> int | None:
        index = _word_indices().get(word) if isinstance(word, str) else None
        return index if index is not None and index < len(self.words) else None

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"target"}:
            raise UserError(f"Wordle has no reset option {sorted(unknown)}; it has: target")
        if "target" in options:
            index = self._word_index(options["target"])
            if index is None:
                raise UserError(
                    f"target must be one of the {len(self.words)} words, not {options['target']!r}"
                )
        else:
            index = int(self.np_random.integers(len(self.words)))
        self._target_index = index
        self._rewind()
        return (user("Wordle:\n"),), {}

    def _rewind(self) -> None:
        self.guesses = ()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        guess = self._word_index(text.strip().replace(" ", ""))
        self.guesses = (*self.guesses, guess)
        info: dict[str, Any] = {"legal": guess is not None}
        if guess is None:
            answer, reward = "\n", self.bad_word_reward
        else:
            answer = FEEDBACK_TEXTS[
                feedback_table(self.official_duplicates)[guess, self._target_index]
            ]
            reward = 0.0 if guess == self._target_index else -1.0
        terminated = guess == self._target_index or len(self.guesses) == MAX_GUESSES
        if terminated:
            info["success"] = guess == self._target_index
        return (user(answer),), reward, terminated, False, info
