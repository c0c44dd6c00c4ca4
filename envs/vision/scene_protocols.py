"""How an agent looks at a scene and answers: tools over views, or ViGoRL's points."""

from collections.abc import Callable
from dataclasses import dataclass

from agentrl_jax.envs.answer_protocol import AnswerProtocol
from agentrl_jax.tool_formats import HermesToolFormat

VIGORL_POINT_DISTANCE = 10.0  # pixels between points that count apart; ViGoRL's code
VIGORL_MAX_CROPS = 5


@dataclass(frozen=True)
class LookCounts:
    """What an episode consisted of when it ended."""

    is_right: bool
    is_formatted: bool  # every turn was
    names_points: bool  # a thought of the episode names a point
    distinct_points: int  # that were looked at


@dataclass(frozen=True)
class SceneProtocol(AnswerProtocol):
    """How an agent and `SceneQuestions` write to each other.

    Args:
        tools: names of the tools on offer.
        thinks: a turn begins with <think>...</think>.
    """

    tools: tuple[str, ...] = ()
    thinks: bool = True

    def write(self, thought: str, answer: str) -> str:
        """The text of a last turn, as a demonstration has it."""
        return f"{self.write_thought(thought)}{self.start}{answer}{self.end}"

    def write_thought(self, thought: str) -> str:
        """A thought, as a demonstration has it before an answer or beside a call."""
        return f"<think>{thought}</think>" if self.thinks else ""


def outcome(counts: LookCounts) -> dict[str, float]:
    """1 for a right answer."""
    return {"outcome": float(counts.is_right)}


def vigorl(counts: LookCounts) -> dict[str, float]:
    """ViGoRL's reward of several turns (arXiv 2505.23678, its code): .6 accuracy + .4 format,
    format = 1 + .2 (distinct points - 1) where every turn is well-formed, else 0.

    Without a point the last term is 0 (our reading).
    """
    points = 0.2 * max(0, min(counts.distinct_points, VIGORL_MAX_CROPS) - 1)
    return {
        "outcome": 0.6 * counts.is_right,
        "format": 0.4 * (1 + points) * counts.is_formatted,
    }


def vigorl_single(counts: LookCounts) -> dict[str, float]:
    """ViGoRL's reward of one turn (its code): .5 accuracy + .5 where the turn is well-formed and
    its thought names a point.
    """
    return {
        "outcome": 0.5 * counts.is_right,
        "format": 0.5 * (counts.is_formatted and counts.names_points),
    }


# name -> (parts of an episode, bounds of their sum)
SCENE_REWARDS: dict[str, tuple[Callable[[LookCounts], dict[str, float]], tuple[float, float]]] = {
    "outcome": (outcome, (0.0, 1.0)),
    "vigorl": (vigorl, (0.0, 0.6 + 0.4 * 1.8)),
    "vigorl_single": (vigorl_single, (0.0, 1.0)),
}
_TAGS = ("<answer>", "</answer>")
SCENE_PROTOCOLS = {
    "plain": SceneProtocol(
        "Call tools to see details, then write the answer alone.",
        tools=("crop", "zoom", "rotate", "enhance"),
        thinks=False,
    ),
    "direct": SceneProtocol(
        "Think in <think>...</think>, then answer in <answer>...</answer>.", *_TAGS
    ),
    # arXiv 2505.23678, one turn: points (x, y) stand in the thought
    "vigorl_single": SceneProtocol(
        "Think in <think>...</think> and name the points (x, y) that you look at, then answer in "
        "<answer>...</answer>.",
        *_TAGS,
    ),
    "vigorl": SceneProtocol(
        "Think in <think>...</think>, then call search_coordinate to see the surroundings of a "
        "point, or answer in <answer>...</answer>.",
        *_TAGS,
        HermesToolFormat(),
        tools=("search_coordinate",),
    ),
}
