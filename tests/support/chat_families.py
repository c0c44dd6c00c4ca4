"""Byte tokenizers with the chat templates and the added tokens of published model families."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AddedToken

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
    special: tuple[str, ...] = ()  # further added tokens that the tokenizer calls special
    marks: tuple[str, ...] = ()  # and those that it does not

    def tokenizer(self) -> Any:
        """A tokenizer of bytes and the family's added tokens."""
        tokenizer = byte_tokenizer()
        stop, *others = self.tokens
        tokenizer.add_special_tokens({"eos_token": stop, "extra_special_tokens": others})
        for tokens, is_special in ((self.special, True), (self.marks, False)):
            tokenizer.add_tokens(
                [AddedToken(token, special=is_special, normalized=False) for token in tokens]
            )
        tokenizer.chat_template = (FOLDER / f"{self.template}.jinja").read_text()
        return tokenizer


CHATML_TOKENS = ("<|im_end|>", "<|im_start|>")
QWEN_SPECIAL = (
    "<|endoftext|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
QWEN_MARKS = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
)  # fmt: skip
QWEN3_MARKS = ("<tool_response>", "</tool_response>", "<think>", "</think>")
LLAMA_SPECIAL = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>", "<|eom_id|>",
    *(f"<|reserved_special_token_{i}|>" for i in range(248)),
)  # fmt: skip
GEMMA_SPECIAL = (
    "<bos>", "<eos>", "<mask>", "<start_of_image>", "<end_of_image>", "<image_soft_token>",
)  # fmt: skip
HTML = (
    "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5",
    "h6", "blockquote", "strong", "em", "b", "i", "u", "s", "sub", "sup", "code", "ul", "ol", "li",
    "a",
)  # fmt: skip
GEMMA_MARKS = (
    "[multimodal]", "[@BOS@]", *(f"<unused{i}>" for i in range(99)),
    *(f"<{tag}>" for tag in HTML), *(f"</{tag}>" for tag in HTML),
    *("\n" * n for n in range(2, 32)), *("▁" * n for n in range(2, 32)),
)  # fmt: skip
FAMILIES = {
    "Qwen2.5": ChatFamily(
        "qwen2_5", CHATML_TOKENS, HermesToolFormat(), special=QWEN_SPECIAL, marks=QWEN_MARKS
    ),
    "Qwen3": ChatFamily(
        "qwen3",
        CHATML_TOKENS,
        HermesToolFormat(),
        special=QWEN_SPECIAL,
        marks=(*QWEN_MARKS, *QWEN3_MARKS),
    ),
    "Llama 3.1": ChatFamily(
        "llama3_1",
        ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
        LlamaToolFormat(),
        special=LLAMA_SPECIAL,
    ),
    "Gemma 3": ChatFamily(
        "gemma3",
        ("<end_of_turn>", "<start_of_turn>"),
        HermesToolFormat(),
        knows_tools=False,
        special=GEMMA_SPECIAL,
        marks=GEMMA_MARKS,
    ),
}
