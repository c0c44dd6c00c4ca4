"""How likely the policy holds the right answer to be at each turn: what information gain is made of (IGPO, arXiv 2510.14967)."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.facts import fact
from agentrl_jax.messages import assistant
from agentrl_jax.rendering import Renderer
from agentrl_jax.rows import Indices, Row
from agentrl_jax.trajectories import Group, Turn

Mean = Callable[[list[Row], Indices], np.ndarray]  # rows and their tokens to judge -> log-prob of each token


@dataclass
class GoldProbe:
    """log P(answer | state) of every turn, teacher-forced after a cue, as `info["gold_logp"]`: the mean over the answer's tokens.

    The answer is what a turn's `info["gold"]` says. One more forward pass over each turn's prompt.
    """

    cue: str  # what the policy writes before an answer: "answer "
    agent: str = "policy"

    def __call__(self, groups: Sequence[Group], renderer: Renderer, judge: Mean) -> list[Group]:
        turns = [turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns]
        rows = [self._row(turn, renderer) for turn in turns]
        owner = np.repeat(np.arange(len(rows)), [int(row.action_mask.sum()) for row in rows])
        position = np.concatenate([np.flatnonzero(row.action_mask) for row in rows] or [np.zeros(0, np.int64)])
        every = np.arange(len(rows))
        zeros = np.zeros(len(rows))
        logp = judge(rows, Indices(owner, position, owner, every, zeros, zeros > 0, every))
        means = iter((np.bincount(owner, logp, len(rows)) / np.maximum(np.bincount(owner, minlength=len(rows)), 1)).tolist())

        def known(turn: Turn) -> Turn:
            return dataclasses.replace(turn, info={**turn.info, "gold_logp": next(means)})

        return [
            dataclasses.replace(group, trajectories=tuple(t.replace(turns=tuple(map(known, t.turns))) for t in group.trajectories))
            for group in groups
        ]

    def _row(self, turn: Turn, renderer: Renderer) -> Row:
        """The prompt of the turn's first call, the cue and the answer; the answer's tokens and what ends it are judged."""
        said, cue = (renderer.action_ids(assistant(text)) for text in (self.cue + str(fact(turn, "gold")), self.cue))
        shortest = min(len(said), len(cue))
        differs = np.flatnonzero(np.asarray(said[:shortest]) != np.asarray(cue[:shortest]))
        prompt = turn.calls[0].prompt
        tokens = np.concatenate([prompt, np.asarray(said, np.int32)])
        judged = np.zeros(len(tokens), bool)
        judged[len(prompt) + (int(differs[0]) if len(differs) else shortest) :] = True
        n = len(tokens)
        return Row(tokens, judged, np.zeros(n, np.float32), np.full(n, -1, np.int32), np.ones(n, np.float32), np.where(judged, 0, -1))
