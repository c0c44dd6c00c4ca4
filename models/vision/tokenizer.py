"""Tokenizers for small models that see, which need no download."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerFast

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.images.prompts import IMAGE, VIDEO
from agentrl_jax.models.tokenizers import byte_tokenizer, train_bpe

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", IMAGE)
# ChatML whose messages may hold images and videos, which stand between two tokens as in Qwen2-VL's.
# Of tools the name and the description are shown.
CHATML_WITH_IMAGES = """\
{%- if tools %}{{ '<|im_start|>system\n' }}
{%- for tool in tools %}{{ tool.function.name + ': ' + tool.function.description + '\n' }}
{%- endfor %}{{ '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string %}{{ message['content'] }}{% else %}
{%- for part in message['content'] %}
{%- if part.type in ('image', 'video') %}
{{- '<|vision_start|><|' + part.type + '_pad|><|vision_end|>' }}
{%- else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def vision_byte_tokenizer(videos: bool = False) -> PreTrainedTokenizerFast:
    """`byte_tokenizer(chat=True)` with the tokens of images, or of videos too, and a template that
    shows them.
    """
    return _with_images(byte_tokenizer(chat=True), videos)


def _with_images(tokenizer: PreTrainedTokenizerFast, videos: bool) -> PreTrainedTokenizerFast:
    """The tokenizer with the tokens of images, or of videos too, and a template that shows them."""
    tokenizer.add_tokens([*VISION_TOKENS, *([VIDEO] if videos else [])], special_tokens=True)
    tokenizer.chat_template = CHATML_WITH_IMAGES
    return tokenizer


@dataclass
class VisionByteTokenizer:
    """A config's tokenizer: `vision_byte_tokenizer`."""

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        return vision_byte_tokenizer()


@dataclass
class VisionBPETokenizer:
    """A config's tokenizer: `train_bpe` on the run's texts, each digit a token of its own, with the
    tokens of images and a template that shows them.
    """

    vocab_size: int = 512  # without the tokens of images
    # whether there is a token of videos too
    videos: bool = field(default=False, metadata=OMITTED_AT_DEFAULT)

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        tokenizer = train_bpe(texts, self.vocab_size, chat=True, split_digits=True)
        return _with_images(tokenizer, self.videos)
