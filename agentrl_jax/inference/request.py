"""`Request`: a call in progress in a local engine."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.call_checksum import CallChecksum, no_checksum
from agentrl_jax.clock import epoch_seconds
from agentrl_jax.engine import GenerationFuture, PromptImage
from agentrl_jax.image_format import ImageLayout
from agentrl_jax.inference.image_encoder import ImageEncoder
from agentrl_jax.inference.sampling import MAX_STOP_IDS
from agentrl_jax.trajectories import Call, CallTime, FinishReason, RandomKey, Sampling, starts_with


@dataclass(eq=False)
class Request:
    """A call in progress. The columns from `tokens` on have one entry per action token, as arrays
    of numbers, which cost the garbage collector nothing; those of alternatives are empty where none
    are recorded. Times are as in `CallTime`.
    """

    ids: np.ndarray  # int32: the prompt
    sampling: Sampling
    key: RandomKey
    key_data: np.ndarray
    parent: Call | None
    images: tuple[PromptImage, ...]
    layout: ImageLayout | None  # of the prompt's positions; None: they are those of a text
    future: GenerationFuture
    submitted: float = field(default_factory=epoch_seconds)
    admitted: float = 0.0
    prefilled: float = 0.0  # 0: not yet
    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    logp: "array[float]" = field(default_factory=lambda: array("f"))
    entropy: "array[float]" = field(default_factory=lambda: array("f"))
    version: "array[int]" = field(default_factory=lambda: array("i"))
    alternatives: list[np.ndarray] = field(default_factory=list)
    alternative_logp: list[np.ndarray] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens of the prompt and of the action so far."""
        return len(self.ids) + len(self.tokens)

    def token_slice(self, start: int, stop: int) -> np.ndarray:
        """Tokens `start` to `stop` of the prompt followed by the action so far."""
        n = len(self.ids)
        if stop <= n:
            return self.ids[start:stop]
        action = np.asarray(self.tokens[max(start - n, 0) : stop - n])
        return np.concatenate([self.ids[start:], action])

    def chunk_end(self, start: int, chunk: int) -> int:
        """The position after a prefill program of `chunk` tokens that begins at `start`.

        All but the last token of the sequence are prefilled; an image whose tokens attend to all of
        it is not cut.
        """
        end = min(start + chunk, self.length - 1)
        if self.layout is None or self.layout.visible_until is None:
            return end
        return next((x.start for x in self.images if max(start, x.start) < end < x.end), end)

    @property
    def longest_whole_image(self) -> int:
        """The most tokens of an image that `chunk_end` does not cut."""
        if self.layout is None or self.layout.visible_until is None:
            return 0
        return max(image.image.num_tokens for image in self.images)

    def has_images_from(self, position: int) -> bool:
        """Whether an image has tokens from this position on."""
        return bool(self.images) and self.images[-1].end > position

    @property
    def rope_delta(self) -> int:
        """See `ImageLayout`."""
        return 0 if self.layout is None else self.layout.rope_delta

    def rope_positions(self, columns: np.ndarray) -> np.ndarray:
        """The rotary positions of some tokens of prompt and action, int32 [3, columns]."""
        positions = np.broadcast_to(columns + self.rope_delta, (3, len(columns))).copy()
        if self.layout is not None and self.layout.rope_positions is not None:
            of_prompt = columns < len(self.ids)
            positions[:, of_prompt] = self.layout.rope_positions[:, columns[of_prompt]]
        return positions

    def visible_until(self, columns: np.ndarray) -> np.ndarray:
        """The last positions to which these tokens attend, int32 [columns]."""
        last = columns.copy()
        if self.layout is not None and self.layout.visible_until is not None:
            of_prompt = columns < len(self.ids)
            last[of_prompt] = self.layout.visible_until[columns[of_prompt]]
        return last

    def extends_parent(self) -> bool:
        """Whether the prompt starts with all of its parent, images included."""
        return self.parent is not None and self.extends(self.parent, self.parent.length)

    def extends(self, parent: Call, num_tokens: int) -> bool:
        """Whether the prompt starts with so many tokens of a call, and shows its images first."""
        images = tuple(image.image.part for image in self.images[: len(parent.images)])
        return images == parent.images and starts_with(self.ids, parent.ids[:num_tokens])

    def force(self, tokens: tuple[int, ...], version: int, alternatives: int) -> None:
        """Begin the action with tokens that are certain: log-prob and entropy 0."""
        n = len(tokens)
        self.tokens, self.version = array("i", tokens), array("i", [version]) * n
        self.logp, self.entropy = array("f", [0.0]) * n, array("f", [0.0]) * n
        if alternatives:
            self.alternatives = [np.full(alternatives, -1, np.int32)] * n
            self.alternative_logp = [np.zeros(alternatives, np.float32)] * n

    def append(
        self, tokens: np.ndarray, logp: np.ndarray, entropy: np.ndarray, version: int
    ) -> None:
        """Append sampled tokens to the action."""
        self.tokens.frombytes(np.asarray(tokens, np.int32).tobytes())
        self.logp.frombytes(np.asarray(logp, np.float32).tobytes())
        self.entropy.frombytes(np.asarray(entropy, np.float32).tobytes())
        self.version.extend(array("i", [version]) * len(tokens))

    def truncate(self, num_tokens: int) -> None:
        """Drop all action tokens but the first `num_tokens`."""
        columns = (
            self.tokens,
            self.logp,
            self.entropy,
            self.version,
            self.alternatives,
            self.alternative_logp,
        )
        for column in columns:
            del column[num_tokens:]

    def to_call(
        self, reason: FinishReason, slot: int, checksum: CallChecksum = no_checksum
    ) -> Call:
        """The finished call, with the row in which it ran and its checksum."""
        n = len(self.tokens)
        action, logp, version = map(np.array, (self.tokens, self.logp, self.version))
        has_alternatives = len(self.alternatives) == n > 0
        return Call(
            prompt=self.ids,
            action=action,
            sampler_logp=logp,
            version=version,
            sampling=self.sampling,
            finish_reason=reason,
            key=self.key,
            entropy=np.array(self.entropy),
            parent=self.parent if self.extends_parent() else None,
            image_spans=tuple((image.start, image.end) for image in self.images),
            images=tuple(image.image.part for image in self.images),
            alternatives=np.stack(self.alternatives) if has_alternatives else None,
            alternative_logp=np.stack(self.alternative_logp) if has_alternatives else None,
            time=self._call_time(slot),
            checksum=checksum(self.ids, action, logp, version, self.sampling.temperature),
        )

    def _call_time(self, slot: int) -> CallTime:
        """The times of a call that ends now; without a program it is prefilled at its admission."""
        prefilled = self.prefilled or self.admitted
        return CallTime(self.submitted, self.admitted, prefilled, epoch_seconds(), slot)


def check_request(
    can_detokenize: bool,
    encoder: ImageEncoder | None,
    ids: np.ndarray,
    sampling: Sampling,
    images: Sequence[PromptImage],
) -> None:
    """Raises ValueError where the arguments of `Engine.submit` make no sense for an engine that may
    decode ids, and encodes images.
    """
    if len(ids) == 0:
        raise ValueError("a prompt needs at least one token")
    if len(sampling.stop_ids) > MAX_STOP_IDS:
        raise ValueError(
            f"a call can have at most {MAX_STOP_IDS} stop ids, not {len(sampling.stop_ids)}"
        )
    if sampling.stop_strings and not can_detokenize:
        raise ValueError("stop strings need an engine that was given a decoder of ids")
    if images and encoder is None:
        raise ValueError(
            "this engine was made for prompts without images: set config.engine.image_patches to "
            "the numbers of patches that images have"
        )
    if encoder is not None:
        encoder.check(images, len(ids))
