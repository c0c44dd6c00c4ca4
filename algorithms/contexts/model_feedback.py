"""`ModelFeedback`: a named model comments on each turn (MINT, arXiv 2309.10691)."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl_jax.context import ContextManager, NoteRequest
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.trajectories import Turn

TEXTUAL = "You are an expert. Give the agent helpful feedback, in one or two sentences."
BINARY = "You are an expert. Is the agent's last step GOOD or BAD? Begin with that word."
SECRET = "The right answer is {answer}; never tell it."


@dataclass(frozen=True)
class ModelFeedback(ContextManager):
    """The full history, with another model's feedback after each turn that did not end the episode.

    The model reads the transcript and the instruction. With `knows_answer` it also reads
    `turn.info["gold"]`, the right answer, and what it writes is shown without that text. Feedback
    is no call of the policy, so nothing is trained on it; demonstrations have none.

    Args:
        model: its name in `Experiment.models`.
        knows_answer: whether it reads the right answer.
        binary: only "This is GOOD." or "This is BAD." is shown, by the first word it writes.
        instruction: after the transcript; empty: `TEXTUAL` or `BINARY`.
        heading: before feedback in the view.
        max_tokens: of feedback; 0: as many as an action of the model has.
    """

    model: str
    knows_answer: bool = False
    binary: bool = False
    instruction: str = ""
    heading: str = "Expert feedback:\n"
    max_tokens: int = 0

    @property
    def writes_notes(self) -> bool:
        return True

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        view, answer = list(opening), ""
        for turn in turns:
            view += [*self._feedback_messages(turn.notes, answer), turn.action, *turn.observation]
            answer = str(turn.info.get("gold", ""))
        return [*view, *self._feedback_messages(notes, answer)]

    def _feedback_messages(self, notes: Sequence[Message], answer: str) -> list[Message]:
        texts = [note.text.strip() for note in notes if note.text.strip()]
        if self.binary:
            texts = [f"This is {'GOOD' if t.upper().startswith('GOOD') else 'BAD'}." for t in texts]
        elif self.knows_answer and answer:
            texts = [text.replace(answer, "...") for text in texts]
        return [user(f"{self.heading}{text}") for text in texts]

    def next_note_request(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        prompt_length: int,
    ) -> NoteRequest | None:
        if not turns or notes:
            return None
        parts = [transcript(self.view(opening, turns))]
        if self.knows_answer:
            if "gold" not in turns[-1].info:
                raise UserError(
                    "feedback by a model that knows the answer needs an environment that sets "
                    "info['gold'], such as CodeProblems"
                )
            parts.append(SECRET.format(answer=turns[-1].info["gold"]))
        parts.append(self.instruction or (BINARY if self.binary else TEXTUAL))
        return NoteRequest(
            [user("\n".join(parts))], budget=self.max_tokens, name="feedback", model=self.model
        )

    def demonstrated_note(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        action: Message,
    ) -> Message | None:
        return Message("assistant", "")


def transcript(messages: Sequence[Message]) -> str:
    """A line or more for each message, calls of tools included."""
    lines = []
    for message in messages:
        writer = "Agent" if message.role == "assistant" else "Environment"
        calls = [] if message.raw_text else [f"{c.name} {c.arguments}" for c in message.tool_calls]
        lines.append(f"{writer}: {' '.join(filter(None, [message.full_text, *calls]))}")
    return "\n".join(lines)
