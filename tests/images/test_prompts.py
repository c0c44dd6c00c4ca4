"""Prompts with images: their ids are those of Hugging Face's chat templates and processors."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.chat_families import FAMILIES
from support.fixtures import make_call
from support.vision_families import VISION_FAMILIES

from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import ImageError, ImageReader, image_part
from agentrl_jax.images.prompts import gemma3_chat_images, qwen2_5_vl_chat_images
from agentrl_jax.messages import ImagePart, Message, TextPart, ToolCall, assistant, user
from agentrl_jax.renderer import ChatFormat, ChatRenderer

RENDERERS = {name: family.renderer() for name, family in VISION_FAMILIES.items()}
PROCESSORS = {name: family.processor() for name, family in VISION_FAMILIES.items()}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "zoom",
            "description": "Look closer.",
            "parameters": {"type": "object", "properties": {"x": {"type": "number"}}},
        },
    }
]


def picture(height: int, width: int, seed: int = 0) -> ImagePart:
    return image_part(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


sides = st.integers(1, 90)
pictures = st.builds(picture, sides, sides, st.integers(0, 3))
# No white space at the borders, which Gemma's template strips, and no tag like <a>: such a tag is a
# token of Gemma's, which texts from outside do not spell here.
words = (
    st.text("ab <|>_.\n", max_size=8)
    .filter(lambda text: ">" not in text.partition("<")[2])
    .map(lambda text: f"x{text}x")
)
contents = st.one_of(
    words, st.lists(st.one_of(pictures, words.map(TextPart)), min_size=1, max_size=4).map(tuple)
)
conversations = st.lists(st.tuples(contents, words), min_size=1, max_size=3)


def reference_ids(name: str, messages: Sequence[Message]) -> list[int]:
    """The ids that Hugging Face's processor gives to the text of the chat template."""
    processor, reader = PROCESSORS[name], ImageReader()
    data = [
        {
            "role": message.role,
            "content": message.content
            if isinstance(message.content, str)
            else [
                {"type": "text", "text": part.text}
                if isinstance(part, TextPart)
                else {"type": "image"}
                for part in message.content
            ],
        }
        for message in messages
    ]
    text = processor.tokenizer.apply_chat_template(data, tokenize=False, add_generation_prompt=True)
    images = [
        Image.fromarray(reader.pixels(part)) for message in messages for part in message.images
    ]
    options = {"add_special_tokens": False}
    if not images:
        return processor.tokenizer(text, **options)["input_ids"]
    return list(processor(images=images, text=text, **options)["input_ids"][0])


@pytest.mark.parametrize("name", VISION_FAMILIES)
@given(turns=conversations)
@settings(max_examples=25, deadline=None)
def test_prompts_have_the_ids_of_hugging_face(name: str, turns: list):
    renderer = RENDERERS[name]
    messages = [
        m for content, answer in turns for m in (Message("user", content), assistant(answer))
    ]
    messages = messages[:-1]
    prompt = renderer.render(messages)
    assert prompt.ids.tolist() == reference_ids(name, messages)
    placeholder = renderer.codec.added_tokens.ids[VISION_FAMILIES[name].images.token]
    parts = [part for message in messages for part in message.images]
    assert [image.image.part for image in prompt.images] == parts
    inside = np.zeros(len(prompt.ids), bool)
    for (start, end), image in zip(prompt.image_spans, prompt.images):
        assert (
            end - start
            == image.image.num_tokens
            == image.image.num_patches // (image.image.processor.merge_size**2)
        )
        assert not inside[start:end].any()
        inside[start:end] = True
    assert np.array_equal(prompt.ids == placeholder, inside)


@pytest.mark.parametrize("name", VISION_FAMILIES)
@given(turns=conversations)
@settings(max_examples=25, deadline=None)
def test_continuations_have_the_ids_and_images_of_whole_prompts(name: str, turns: list):
    renderer = RENDERERS[name]
    history = [Message("user", turns[0][0])]
    prompt = renderer.render(history)
    ids, images = prompt.ids, list(prompt.images)
    for (_, answer), (content, _) in itertools.pairwise(turns):
        call = make_call(ids, renderer.action_ids(assistant(answer)))
        history.append(renderer.parse(call.action))
        new = [Message("user", content)]
        added = renderer.continuation_ids(call, history, new)
        assert added is not None
        offset = len(call.prompt) + len(call.action)
        images += [
            type(image)(offset + image.start, image.image)
            for image in renderer.image_prompter.prompt_images(added, new)
        ]
        history += new
        ids = np.concatenate([call.ids, added])
    expected = renderer.render(history)
    assert ids.tolist() == expected.ids.tolist()
    spans = [(image.start, image.end) for image in images]
    assert spans == list(expected.image_spans)
    assert [image.image.digest for image in images] == [
        image.image.digest for image in expected.images
    ]


@pytest.mark.parametrize("name", VISION_FAMILIES)
@pytest.mark.parametrize("role", ["user", "assistant", "written"])
def test_no_text_stands_for_an_image(name: str, role: str):
    """Not even that of a policy, which may only have copied the tokens."""
    renderer, images = RENDERERS[name], VISION_FAMILIES[name].images
    for token in (images.marker, images.token):
        message: Any = Message("user", (TextPart(f"a{token}"), picture(30, 30)))
        if role != "user":
            message = assistant(f"a{token}b")
            message = message.replace(raw_text=message.text) if role == "written" else message
        messages = [message] if role == "user" else [user("x"), message, user("y")]
        prompt = renderer.render(messages)
        assert len(prompt.images) == (role == "user")
        expected = sum(image.image.num_tokens for image in prompt.images)
        placeholder = renderer.codec.added_tokens.ids[images.token]
        assert (prompt.ids == placeholder).sum() == expected


@pytest.mark.parametrize("name", VISION_FAMILIES)
def test_a_tool_may_return_images(name: str):
    renderer = RENDERERS[name]
    call = ToolCall("call_0", "zoom", '{"x": 1}')
    messages = [
        Message("user", (picture(40, 40), TextPart("What is there?"))),
        Message("assistant", "", (call,)),
        Message("tool", (TextPart("here"), picture(50, 30, 1)), tool_call_id="call_0"),
        user("Well?"),
    ]
    history = messages if name != "Gemma 3" else messages[:3]
    prompt = renderer.render(history, TOOLS)
    assert [image.image.part for image in prompt.images] == [
        messages[0].images[0], messages[2].images[0]
    ]  # fmt: skip
    text = renderer.codec.decode(tuple(prompt.ids.tolist()))
    between = text[text.index("<tool_response>") :]
    assert between.index("here") < between.index(VISION_FAMILIES[name].images.token)


def test_templates_and_tokenizers_that_show_no_images_are_refused():
    tokenizer = FAMILIES["Qwen2.5"].tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}{% endfor %}"
    renderer = ChatRenderer(tokenizer, images=qwen2_5_vl_chat_images())
    with pytest.raises(UserError, match="the chat template shows 0 of 1 images"):
        renderer.render([Message("user", (picture(9, 9),))])
    with pytest.raises(UserError, match="has no token '<start_of_image>'"):
        ChatFormat(images=gemma3_chat_images())(tokenizer)


def test_an_image_that_cannot_be_shown_is_named():
    with pytest.raises(ImageError, match="one side is more than 200 times the other"):
        RENDERERS["Qwen2.5-VL"].render([Message("user", (picture(201, 1),))])
