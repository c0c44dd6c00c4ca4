"""Byte tokenizers with the chat templates of published model families."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.tool_formats import HermesToolFormat, LlamaToolFormat, ToolFormat

FOLDER = Path(__file__).parent / "chat_templates"


@dataclass(frozen=True)
class ChatFamily:
    """A family's template, the tokens of its turns (the stop is first) and its tool format."""

    template: str
    tokens: tuple[str, ...]
    tool_format: ToolFormat
    knows_tools: bool = True

    def tokenizer(self) -> Any:
        """A tokenizer of bytes and the family's special tokens."""
        tokenizer = byte_tokenizer()
        stop, *others = self.tokens
        tokenizer.add_special_tokens({"eos_token": stop, "extra_special_tokens": others})
        tokenizer.chat_template = (FOLDER / f"{self.template}.jinja").read_text()
        return tokenizer


CHATML_TOKENS = ("<|im_end|>", "<|im_start|>")
FAMILIES = {
    "Qwen2.5": ChatFamily("qwen2_5", CHATML_TOKENS, HermesToolFormat()),
    "Qwen3": ChatFamily("qwen3", CHATML_TOKENS, HermesToolFormat()),
    "Llama 3.1": ChatFamily(
        "llama3_1",
        ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
        LlamaToolFormat(),
    ),
    "Gemma 3": ChatFamily(
        "gemma3", ("<end_of_turn>", "<start_of_turn>"), HermesToolFormat(), knows_tools=False
    ),
}
