"""`ImageEnvironment`: a task about images, drawn at each reset, answered by messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agentrl_jax.environment import Messages
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import check_no_options, checked_bool, checked_choice, checked_int
from agentrl_jax.envs.vision.images import Image
from agentrl_jax.envs.vision.splits import SPLITS, Generators, TaskKey
from agentrl_jax.images.loading import image_part, pillow
from agentrl_jax.messages import ImagePart, Message, TextPart
from agentrl_jax.tool_environment import ToolEnvironment
from agentrl_jax.tools import Tool

NO_TASK = TaskKey("", "", 0)


@dataclass(frozen=True)
class Reply:
    """The answer to one action."""

    observation: Messages = ()
    success: bool | None = None  # None: the episode continues
    rewards: Mapping[str, float] = field(default_factory=dict)  # its parts; their sum is the reward
    info: Mapping[str, Any] = field(default_factory=dict)  # fields added to the turn's info


def look(text: str, *images: Image | ImagePart) -> Message:
    """A user's message of images and then a text."""
    parts = tuple(i if isinstance(i, ImagePart) else image_part(i) for i in images)
    return Message("user", (*parts, TextPart(text)))


class ImageEnvironment(ToolEnvironment, Forkable):
    """An environment whose tasks are drawn from the generators of a split.

    Subclasses define `generators`, `reward_parts`, `_open`, `_rewind`, `_opening_messages` and
    `_respond`. The pixels are functions of the task's seed and are not part of the state. An
    episode that has not ended after `horizon` turns is truncated, without success and with the
    reward `_truncated_rewards`.
    """

    max_calls = 1
    generators: ClassVar[Generators]
    reward_parts: ClassVar[tuple[str, ...]] = ("outcome",)

    def __init__(
        self,
        split: str,
        kinds: Sequence[str],
        horizon: int,
        instruction: bool,
        render_mode: str | None,
    ) -> None:
        super().__init__(render_mode)
        pillow()  # so that a missing package is reported here
        self.split = checked_choice("split", split, SPLITS)
        self.kinds = self.generators.checked(split, kinds)
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.instruction = checked_bool("instruction", instruction)
        self.task = NO_TASK

    def _open(self) -> None:
        """Set what follows from `self.task`; further draws are from `np_random`."""
        raise NotImplementedError(f"{type(self).__name__} must define _open")

    def _opening_messages(self) -> Messages:
        """The opening messages."""
        raise NotImplementedError(f"{type(self).__name__} must define _opening_messages")

    def _respond(self, message: Message) -> Reply:
        """The answer to one action, which also changes the state."""
        raise NotImplementedError(f"{type(self).__name__} must define _respond")

    def _truncated_rewards(self) -> Mapping[str, float]:
        """The parts of the reward of an episode that the horizon cuts."""
        return {}

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        return ()

    @property
    def turns_left(self) -> int:
        return self.horizon - len(self._step_history)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options(type(self).__name__, options)
        self.task = self.generators.draw(self.np_random, self.split, self.kinds)
        self._open()
        self._rewind()
        return self._opening_messages(), {}

    def _step_message(self, message: Message) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        reply = self._respond(message)
        terminated = reply.success is not None
        truncated = not terminated and len(self._step_history) + 1 >= self.horizon
        rewards = dict.fromkeys(self.reward_parts, 0.0) | dict(reply.rewards)
        info: dict[str, Any] = {"kind": self.task.generator, **reply.info}
        if truncated:
            rewards |= self._truncated_rewards()
        if terminated or truncated:
            info["success"] = bool(reply.success)
        info["rewards"] = rewards
        return reply.observation, sum(rewards.values()), terminated, truncated, info
