"""`VideoQuestions`: questions about a long video, of which an agent chooses the frames to see."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.options import checked_bool, checked_choice, checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision.answers import is_right
from agentrl_jax.envs.vision.frame_actions import (
    FORMS,
    FRAME_REWARDS,
    FrameAction,
    FrameCounts,
    inconsistency,
    read_action,
)
from agentrl_jax.envs.vision.image_environment import ImageEnvironment, Reply
from agentrl_jax.envs.vision.videos import (
    VIDEO_QUESTIONS,
    Video,
    VideoQuestion,
    ask_video,
    clock_text,
    make_video,
    render_frame,
)
from agentrl_jax.images.loading import image_part
from agentrl_jax.images.videos import video_part
from agentrl_jax.messages import ImagePart, Message, TextPart, user

_LONG_SECONDS = 300  # FrameThinker shows 8 frames of a range, and 12 of a longer video
_FEW, _MANY = 8, 12
_NO_VIDEO = Video(0, 1, 1.0, (), False)
_NO_QUESTION = VideoQuestion("", "", ())


def turn_text(thought: str, action: str) -> str:
    """A turn in FrameThinker's form."""
    return f"<think>{thought.strip()}</think><action>{action}</action>"


def _choose(thought: str, start: int, end: int) -> str:
    return turn_text(
        f"{thought}I look between frames {start} and {end}.",
        f"choose frames between {start} and {end}",
    )


def _expert_action(env: "VideoQuestions", rng: np.random.Generator) -> str:
    """Looks where the events are that the question needs, and answers with what it saw; at once
    where no frames can be chosen.
    """
    question, video = env.question, env.video
    last = env.actions_so_far[-1] if env.actions_so_far else None
    if question.seconds is not None and env.looks_left > 1 and last is None:
        time = clock_text(question.seconds)
        return turn_text(
            f"{_facts(env)}The question names the time {time}: I need its frame.",
            f"get frame number at time {time}",
        )
    if last is not None and last.kind == "time" and last.frame is not None and env.looks_left:
        low = max(0, min(last.frame - 5, video.frames - 11))
        return _choose("", low, min(video.frames - 1, low + 10))
    unseen = [i for i in question.events if not env.has_seen(i)]
    if unseen and env.looks_left:
        event = video.events[unseen[0]]
        before = max((f for f in env.seen_frames if f < event.start), default=0)
        after = min((f for f in env.seen_frames if f > event.end), default=video.frames - 1)
        return _choose(f"{_facts(env)}I have not seen all. ", before, after)
    return turn_text(_facts(env) or "I saw enough.", f"output answer: {question.answer}")


def _facts(env: "VideoQuestions") -> str:
    """The objects of the seen frames; their codes where the question asks for one."""
    facts, asks_code = "", env.task.generator == "code"
    for i, event in enumerate(env.video.events):
        frame = next((f for f in sorted(env.seen_frames) if event.start <= f <= event.end), None)
        if frame is not None and (not asks_code or i in env.question.events):
            code = f" with the code {event.code}" if asks_code else ""
            facts += f"Frame {frame} shows the {event.name}{code}. "
    return facts


def _random_action(env: "VideoQuestions", rng: np.random.Generator) -> str:
    """Chooses a uniform range, or answers with a uniform event's name or code."""
    if env.looks_left and rng.random() < 0.5:
        start, end = sorted(rng.choice(env.video.frames, 2, replace=False).tolist())
        return _choose("I look around. ", start, end)
    event = env.video.events[int(rng.integers(len(env.video.events)))]
    guesses = (event.name, event.code, str(len(env.video.events)))
    return turn_text("I guess.", f"output answer: {guesses[int(rng.integers(3))]}")


class VideoQuestions(ImageEnvironment):
    """FrameThinker's turns (arXiv 2509.24304): choose frames, ask for the frame of a time, answer.

    The opening shows `opening_frames` uniform frames with their numbers; a choice of S and E shows
    8 frames between them, 12 of a video over 300 seconds. An answer ends the episode. `info` holds
    `frames`, how many images were shown, `fault`, the inconsistency so far, `answer`, `gold`,
    `void` and `formatted`; `success` is the right answer.

    Scripted policies: `random`, `expert`, and `mixture` and `weak`, in each turn the expert with
    probability .85 and .5.

    Args:
        split: "train", "test" or "held_out" (docs/vision_worlds.md).
        kinds: of questions; empty: all of the split.
        reward: "released", "paper", "outcome", "unconditional" or "format".
        frames: of a video.
        opening_frames: that are shown at once.
        choose: whether frames may be chosen; else the only action is the answer.
        clock: whether frames show their time.
        view: side of the frames that are shown.
        as_video: whether frames that are shown at once are one video; else each is an image.
        horizon: turns before truncation.
        instruction: whether the opening says how to act.
    """

    generators = VIDEO_QUESTIONS
    reward_parts = ("outcome", "action", "format")
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "expert": _expert_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.85),
            "weak": MixturePolicy(_expert_action, _random_action, 0.5),
        }
    )

    def __init__(
        self,
        split: str = "train",
        kinds: Sequence[str] = (),
        reward: str = "released",
        frames: int = 160,
        opening_frames: int = 8,
        choose: bool = True,
        clock: bool = False,
        view: int = 56,
        horizon: int = 5,
        instruction: bool = True,
        render_mode: str | None = None,
        as_video: bool = False,
    ) -> None:
        super().__init__(split, kinds, horizon, instruction, render_mode)
        self.reward_of, self.reward_bounds = FRAME_REWARDS[
            checked_choice("reward", reward, FRAME_REWARDS)
        ]
        self.num_frames = checked_int("frames", frames, 64, 100_000)
        self.opening_frames = checked_int("opening_frames", opening_frames, 1, 512)
        self.can_choose = checked_bool("choose", choose)
        self.clock = checked_bool("clock", clock)
        self.view = checked_int("view", view, 28, 1024)
        self.as_video = checked_bool("as_video", as_video)
        self.forms = FORMS if choose else "<think>...</think><action>output answer: X</action>"
        self.rules = (
            f"Answer a question about a video in at most {horizon} turns. Write {self.forms}."
        )
        self.video, self.question = _NO_VIDEO, _NO_QUESTION
        self._rewind()

    def _open(self) -> None:
        self.video = make_video(self.task.seed, self.num_frames, self.clock)
        self.question = ask_video(self.task, self.video)

    def _rewind(self) -> None:
        self.actions_so_far: tuple[FrameAction, ...] = ()
        self.seen_frames = frozenset(self._spread(0, self.video.frames - 1, self.opening_frames))
        self.images_shown = self.opening_frames

    @property
    def looks_left(self) -> int:
        """Turns before the last, in which frames may be chosen."""
        return self.turns_left - 1 if self.can_choose else 0

    def has_seen(self, event: int) -> bool:
        """Whether a frame of an event was shown."""
        span = self.video.events[event]
        return any(span.start <= frame <= span.end for frame in self.seen_frames)

    def _spread(self, start: int, end: int, count: int) -> list[int]:
        return [int(frame) for frame in np.linspace(start, end, count).round()]

    def _frames_shown(self, frames: Sequence[int], text: str) -> Message:
        if self.as_video and len(frames := list(dict.fromkeys(frames))) > 1:
            pixels = [render_frame(self.video, frame, self.view) for frame in frames]
            video = video_part(pixels, [frame / self.video.rate for frame in frames])
            numbers = ", ".join(map(str, frames))
            return Message("user", (TextPart(f"frames {numbers}:"), video, TextPart(text)))
        parts: list[TextPart | ImagePart] = []
        for frame in frames:
            image = render_frame(self.video, frame, self.view)
            parts += [TextPart(f"frame {frame}:"), image_part(image)]
        return Message("user", (*parts, TextPart(text)))

    def _opening_messages(self) -> Messages:
        frames = self._spread(0, self.video.frames - 1, self.opening_frames)
        length = f"The video has {self.video.frames} frames, {clock_text(int(self.video.seconds))}."
        instruction = f" Write {self.forms}." if self.instruction else ""
        return (self._frames_shown(frames, f"\n{length} {self.question.text}{instruction}"),)

    def _respond(self, message: Message) -> Reply:
        action = read_action(message.text)
        observation = self._answer_to(action)
        if action.kind == "time":
            action = replace(action, frame=self._frame_at(action.numbers[0]))
        self.actions_so_far += (action,)
        answer = action.answer if action.kind == "answer" else None
        info: dict[str, Any] = {
            "frames": self.images_shown,
            "fault": inconsistency(self.actions_so_far, self.video.frames),
            "formatted": action.kind != "none",
            "void": action.kind == "none",
            "stopped": answer is not None,
            "answer": answer,
            "gold": self.question.answer,
        }
        if answer is None:
            return Reply(observation, info=info)
        right = is_right(answer, self.question.answer)
        kinds = [a.kind for a in self.actions_so_far]
        counts = FrameCounts(
            right,
            info["fault"],
            "time" in kinds,
            "choose" in kinds,
            self.question.seconds is not None,
            kinds.count("none"),
        )
        return Reply((), right, self.reward_of(counts), info)

    def _frame_at(self, seconds: int) -> int | None:
        """The frame of a time; None: the video is over by then."""
        return self.video.frame_at(seconds) if seconds < self.video.seconds else None

    def _answer_to(self, action: FrameAction) -> Messages:
        """What the environment shows or says after an action."""
        if action.kind == "answer":
            return ()
        if action.kind == "none" or not self.can_choose:
            return (user(f"Invalid action. Write {self.forms}."),)
        if action.kind == "time":
            frame, time = self._frame_at(action.numbers[0]), clock_text(action.numbers[0])
            if frame is None:
                end = clock_text(int(self.video.seconds))
                return (user(f"Error: the video ends at {end}, before {time}."),)
            return (user(f"Frame number at time {time} is: {frame}."),)
        start, end = action.numbers
        if not 0 <= start < end < self.video.frames:
            last = self.video.frames - 1
            return (user(f"Error: frames {start} to {end} are no range within 0 to {last}."),)
        count = _FEW if self.video.seconds <= _LONG_SECONDS else _MANY
        inner = (start + 1, end - 1) if end - start >= 2 else (start, end)
        frames = list(dict.fromkeys(self._spread(*inner, count)))
        self.seen_frames |= set(frames)
        self.images_shown += len(frames)
        return (self._frames_shown(frames, ""),)
