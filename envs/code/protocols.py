"""`CodeProtocol`: how code is called, how its output is shown, and how an answer is written."""

import hashlib
from dataclasses import dataclass

from agentrl_jax.envs.answer_protocol import AnswerProtocol
from agentrl_jax.tool_formats import FencedCodeToolFormat, TagToolFormat
from agentrl_jax.tool_formats.line_calls import unfenced

_BOX = "\\boxed{"
# SimpleTIR's prelude: code may end the episode by itself.
_FINAL_ANSWER = "def final_answer(x):\n    print('\\\\boxed{' + str(x) + '}')"


@dataclass(frozen=True)
class CodeProtocol(AnswerProtocol):
    """How an agent and the environment `CodeProblems` write to each other.

    Args:
        no_output: the output of code that prints nothing.
        max_characters: of an output.
        tail_characters: of which so many are the end of an output that is cut.
        last_line: of a traceback only the last line is shown.
        prelude: code that runs before the first call.
        answer_in_output: whether an answer that code prints ends the episode.
    """

    no_output: str = "(no output)"
    max_characters: int = 2000
    tail_characters: int = 0
    last_line: bool = False
    prelude: str = ""
    answer_in_output: bool = False

    def _before_end(self, rest: str) -> str | None:
        if self.end == "}":
            return _to_closing_brace(rest)
        answer = super()._before_end(rest)
        return None if answer is None else _unboxed(answer)

    def show_output(self, text: str) -> str:
        """What the agent reads of an output."""
        text = text or self.no_output
        if len(text) > self.max_characters:
            head, tail = self.max_characters - self.tail_characters, self.tail_characters
            end = f"\n...{text[-tail:]}" if tail else ""
            text = f"{text[:head]}...\n[Output Truncated]{end}"
        return self.output.replace("{}", text)

    def write_answer(self, answer: str) -> str:
        """The text of an answer, as a demonstration has it."""
        return f"{self.start}{answer}{self.end}"


def _to_closing_brace(body: str) -> str | None:
    """The text before the brace that closes one opened before it."""
    depth = 1
    for place, letter in enumerate(body):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth == 0:
            return body[:place].strip()
    return None


def _unboxed(answer: str) -> str:
    """The content of \\boxed{...}, where the answer is that alone."""
    if not answer.startswith(_BOX):
        return answer
    inner = _to_closing_brace(answer[len(_BOX) :])
    return answer if inner is None else inner


def within_noise(text: str, characters: int, seed: str) -> str:
    """A text within so many characters of noise, which is a function of the seed."""
    if not characters:
        return text
    noise = hashlib.shake_256(seed.encode()).hexdigest(characters)[:characters]
    half = characters // 2
    return f"{noise[:half]}\n{text}\n{noise[half:]}"


def without_fence(code: str) -> str:
    """The code of a fenced block, where the text is one."""
    return unfenced(code, "python", "py")


PROTOCOLS = {
    "plain": CodeProtocol("Call python, then write the answer alone.", last_line=True),
    "boxed": CodeProtocol(
        "Call python, then write \\boxed{answer}.", _BOX, "}", max_characters=512, last_line=True
    ),
    # arXiv 2309.10691; the paper shows 2,000 characters
    "mint": CodeProtocol(
        "Write code in <execute>...</execute>, or the answer in <solution>...</solution>.",
        "<solution>",
        "</solution>",
        TagToolFormat({"execute": ("python", "code")}),
        output="Observation:\n{}",
        no_output="[Executed Successfully with No Output]",
    ),
    # arXiv 2505.21668
    "r1ci": CodeProtocol(
        "Write code in a block ```python, or the answer as <<<answer>>>.",
        "<<<",
        ">>>",
        FencedCodeToolFormat(),
        output="Code Execution Results:\n{}",
    ),
    # arXiv 2504.11536
    "retool": CodeProtocol(
        "Write code in <code>...</code>, or the answer as <answer>\\boxed{...}</answer>.",
        "<answer>\\boxed{",
        "}</answer>",
        TagToolFormat({"code": ("python", "code")}),
        output="<interpreter>\n{}\n</interpreter>",
    ),
    # arXiv 2505.01441
    "artist": CodeProtocol(
        "Write code in <python>...</python>, or the answer in <answer>...</answer>.",
        "<answer>",
        "</answer>",
        TagToolFormat({"python": ("python", "code")}),
        output="<output>\n{}\n</output>",
    ),
    # arXiv 2509.25084
    "datamind": CodeProtocol(
        "Write code in <code>...</code>, or the answer in <answer>...</answer>.",
        "<answer>",
        "</answer>",
        TagToolFormat({"code": ("python", "code")}),
        output="<interpreter>\n{}\n</interpreter>",
        max_characters=2048,
        tail_characters=1024,
    ),
    # arXiv 2509.02479: the first block of code of a turn, 512 characters of stdout or the last line
    # of the errors
    "simpletir": CodeProtocol(
        "Write code in a block ```python, or the answer as \\boxed{answer}.",
        _BOX,
        "}",
        FencedCodeToolFormat(),
        output="Code execution result: {}",
        max_characters=512,
        last_line=True,
        prelude=_FINAL_ANSWER,
        answer_in_output=True,
    ),
}
