"""Vision models' tokenizers and renderers, and Hugging Face's processors with the same settings."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from support.chat_families import CHATML_TOKENS, FAMILIES, QWEN_MARKS, QWEN_SPECIAL, ChatFamily
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

from agentrl_jax.images.processor import (
    gemma3_images,
    qwen2_5_vl_images,
    qwen2_5_vl_videos,
    qwen3_vl_images,
    qwen3_vl_videos,
)
from agentrl_jax.images.prompts import (
    ChatImages,
    gemma3_chat_images,
    qwen2_5_vl_chat_images,
    qwen3_vl_chat_images,
)
from agentrl_jax.renderer import ChatFormat, ChatRenderer
from agentrl_jax.tool_formats import HermesToolFormat

LOW, HIGH = 28 * 28, 28 * 28 * 9  # the pixel budget


@dataclass(frozen=True)
class VisionFamily:
    """A family's chat and images, and a reference for the ids of its prompts."""

    chat: ChatFamily
    images: ChatImages
    reference: type  # a processor of Hugging Face

    def renderer(self) -> ChatRenderer:
        chat = ChatFormat(tools_as_text=not self.chat.knows_tools, images=self.images)
        return chat(self.chat.tokenizer())

    def processor(self) -> Any:
        """Hugging Face's processor of images and text."""
        tokenizer: Any = self.chat.tokenizer()
        if self.reference is Gemma3Processor:
            for name, token in (
                ("boi", "<start_of_image>"),
                ("eoi", "<end_of_image>"),
                ("image", "<image_soft_token>"),
            ):
                setattr(tokenizer, f"{name}_token", token)
                setattr(tokenizer, f"{name}_token_id", tokenizer.convert_tokens_to_ids(token))
            return Gemma3Processor(Gemma3ImageProcessorPil(), tokenizer, image_seq_length=4)
        # Their __init__ wants a video processor.
        processor: Any = object.__new__(self.reference)
        processor.image_processor = Qwen2VLImageProcessorPil(
            size={"shortest_edge": LOW, "longest_edge": HIGH},
            patch_size=self.images.processor.patch_size,
        )
        processor.tokenizer, processor.chat_template = tokenizer, tokenizer.chat_template
        processor.feature_extractor = None
        # The real one needs torchvision; its processor reads these of it.
        processor.video_processor = SimpleNamespace(merge_size=2, temporal_patch_size=2)
        for kind in ("image", "video"):
            token = f"<|{kind}_pad|>"
            setattr(processor, f"{kind}_token", token)
            setattr(processor, f"{kind}_token_id", tokenizer.convert_tokens_to_ids(token))
        processor.vision_start_token, processor.vision_end_token = (
            "<|vision_start|>",
            "<|vision_end|>",
        )
        return processor


def _qwen(template: str, knows_tools: bool) -> ChatFamily:
    return ChatFamily(
        template, CHATML_TOKENS, HermesToolFormat(), knows_tools, QWEN_SPECIAL, QWEN_MARKS
    )


VISION_FAMILIES = {
    "Qwen2.5-VL": VisionFamily(
        _qwen("qwen2_5_vl", False),
        qwen2_5_vl_chat_images(qwen2_5_vl_images(LOW, HIGH, qwen2_5_vl_videos(LOW, HIGH))),
        Qwen2_5_VLProcessor,
    ),
    "Qwen3-VL": VisionFamily(
        _qwen("qwen3_vl", True),
        qwen3_vl_chat_images(qwen3_vl_images(LOW, HIGH, qwen3_vl_videos(4 * LOW, 4 * HIGH))),
        Qwen3VLProcessor,
    ),
    "Gemma 3": VisionFamily(
        FAMILIES["Gemma 3"], gemma3_chat_images(gemma3_images(8 * 14)), Gemma3Processor
    ),
}
