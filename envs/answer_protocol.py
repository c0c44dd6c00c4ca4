"""`AnswerProtocol`: what an agent and an environment with tools write to each other."""

from dataclasses import dataclass, field

from agentrl_jax.tool_formats import HermesToolFormat, ToolFormat


@dataclass(frozen=True)
class AnswerProtocol:
    """How an answer is written, tools are called and their outputs are shown.

    Args:
        instruction: the last sentence of the opening.
        start, end: what stands around an answer; both empty: a text without a call is the answer.
        tool_format: how a renderer should read and write calls.
        output: what is shown of a call's output, at `{}`.
    """

    instruction: str
    start: str = ""
    end: str = ""
    tool_format: ToolFormat = field(default_factory=HermesToolFormat)
    output: str = "{}"

    def answer_of(self, text: str) -> str | None:
        """The last answer in a text; None: there is none."""
        if not self.start:
            return text.strip() or None
        _, start, rest = text.rpartition(self.start)
        return self._before_end(rest) if start else None

    def _before_end(self, rest: str) -> str | None:
        """The answer at the beginning of what follows its start; None: it is not closed."""
        inner, end, _ = rest.partition(self.end)
        return inner.strip() if end else None
