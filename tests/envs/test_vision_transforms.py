"""`TransformedImages`: operations of programs and their results, rewards by table, the sandbox."""

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.vision.code_image_tool import check_code, run_on_image
from agentrl_jax.envs.vision.image_operations import operations_of, view_after
from agentrl_jax.envs.vision.transform_rewards import TransformCounts, codevision, process
from agentrl_jax.envs.vision.transform_tasks import BANNER, CORRUPTIONS, TRANSFORM_QUESTIONS
from agentrl_jax.envs.vision.transformed_images import TransformedImages
from agentrl_jax.envs.vision.views import full_view
from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import ImageReader, encode_png
from agentrl_jax.messages import Message, ToolCall
from agentrl_jax.sandbox import kernel
from agentrl_jax.tool_environment import tool_action

SOURCE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
needs_sandbox = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="there is no sandbox here"
)


def transform_env(seed: int = 0, **options) -> TransformedImages:
    env = make("agentrl/TransformedImages-v0", options)
    assert isinstance(env, TransformedImages)
    env.reset(seed=seed)
    return env


def pixels_of(message: Message) -> np.ndarray:
    return ImageReader().pixels(message.images[0])


PROGRAMS = [
    ("result = image.rotate(90, expand=True)", ["rotate_90"]),
    ("result = image.rotate(-90, expand=True)", ["rotate_270"]),
    ("result = image.rotate(angle=180)", ["rotate_180"]),
    ("result = image.transpose(Image.Transpose.ROTATE_270)", ["rotate_270"]),
    ("result = image.transpose(Image.FLIP_LEFT_RIGHT)", ["flip_horizontal"]),
    ("result = ImageOps.mirror(image)", ["flip_horizontal"]),
    ("result = ImageOps.flip(image)", ["flip_vertical"]),
    ("result = np.rot90(np.array(image))", ["rotate_90"]),
    ("result = np.rot90(np.array(image), k=3)", ["rotate_270"]),
    ("result = np.fliplr(np.array(image))", ["flip_horizontal"]),
    ("result = np.flipud(np.array(image))", ["flip_vertical"]),
    ("result = image.crop((3, 4, 13, 9))", ["crop"]),
    ("result = np.array(image)[4:9, 3:13]", ["crop"]),
    ("result = image.transpose(Image.ROTATE_90).crop((2, 5, 9, 20))", ["rotate_90", "crop"]),
    ("a = ImageOps.mirror(image)\nresult = a.rotate(180).crop((1, 2, 8, 9))",
     ["flip_horizontal", "rotate_180", "crop"]),
]  # fmt: skip


@pytest.mark.parametrize(("code", "names"), PROGRAMS)
def test_the_operations_of_a_program_give_its_result(code: str, names: list[str]):
    """The view that follows from the syntax has the pixels that the program makes."""
    operations = operations_of(code)
    assert [operation.name for operation in operations] == names
    view = view_after(full_view(30, 20), operations)
    scope = {"image": Image.fromarray(SOURCE), "Image": Image, "ImageOps": ImageOps, "np": np}
    exec(code, scope)
    result = np.asarray(scope["result"])
    assert view is not None
    np.testing.assert_array_equal(view.pixels(SOURCE, max(result.shape[:2])), result)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("result = image", []),
        ("result = image.rotate(45)", ["rotate_other"]),
        ("result = image.rotate(angle)", ["rotate_other"]),
        ("result = image.crop(box)", ["crop"]),
        ("result = image.resize((5, 5))", ["resize"]),
        ("result = image.rotate(90)", ["rotate_90"]),
        ("result = image.crop((-5, 0, 10, 10))", ["crop"]),
        ("result = ImageOps.autocontrast(image)", ["autocontrast"]),
        ("rotate(90)", []),
        ("for i in range(9): image = image.rotate(90)", ["rotate_90"]),
        ("image.rotate(90)\n" * 30, ["rotate_90"] * 8),
    ],
)
def test_what_does_not_follow_from_the_syntax_has_no_view(code: str, names: list[str]):
    operations = operations_of(code)
    assert [operation.name for operation in operations] == names
    unknown = {"rotate_other", "resize"} & set(names) or "crop(" in code or ".rotate(90)" in code
    assert (view_after(full_view(30, 20), operations) is None) == bool(unknown)


@pytest.mark.parametrize("code", ["result = (", "\0", "(" * 500, "x = " + "-" * 100_000 + "1"])
def test_texts_that_are_no_programs(code: str):
    with pytest.raises(SyntaxError):
        operations_of(code)
    with pytest.raises(ValueError, match=r"not valid Python|characters"):
        check_code(code)


@pytest.mark.parametrize(
    "code",
    [
        "import os", "from subprocess import run", "open('x')", "eval('1')", "__import__('os')",
        "().__class__", "x.__globals__", "import numpy.os\nnumpy.os", "getattr(image, 'save')",
        "from . import x", "#" * 3000, "import cv2",
    ],
)  # fmt: skip
def test_programs_that_are_refused(code: str):
    with pytest.raises(ValueError, match=r"cannot be imported|is not available|characters"):
        check_code(code)


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_the_needed_operations_right_the_image(corruption: str):
    """The corrupted image is Pillow's of the upright one; its inverse shows the banner on top."""
    env = transform_env(kinds=["read"], corruptions=[corruption], view=368)
    upright = Image.fromarray(env.problem.canvas())
    turned = {
        "none": upright,
        "flip_horizontal": ImageOps.mirror(upright),
        "flip_vertical": ImageOps.flip(upright),
    }.get(corruption) or upright.rotate(int(corruption.rpartition("_")[2]), expand=True)
    np.testing.assert_array_equal(pixels_of(env._opening[0]), np.asarray(turned))
    (*_, crop), turns = env.problem.needed, env.problem.needed[:-1]
    assert crop == "crop" and len(turns) == (corruption != "none")
    for name in turns:
        kind, _, value = name.partition("_")
        call = (
            tool_action("rotate", degrees=int(value))
            if kind == "rotate"
            else tool_action("flip", direction=value)
        )
        (reply,), *_ = env.step(call)
        np.testing.assert_array_equal(pixels_of(reply), np.asarray(upright))


@pytest.mark.parametrize("kind", TRANSFORM_QUESTIONS.phrasings)
def test_answers_follow_from_the_scene(kind: str):
    split = "held_out" if kind in TRANSFORM_QUESTIONS.held_out else "train"
    for seed in range(12):
        problem = transform_env(seed, kinds=[kind], split=split).problem
        objects, size = problem.scene.objects, problem.scene.size
        centers = {o.name: np.array([o.x + 20, o.y + 20]) for o in objects}
        if kind == "corner":
            text = problem.text
            corner = [size * ("right corner" in text), size * ("lower" in text)]
            nearest = min(centers, key=lambda n: np.linalg.norm(centers[n] - corner))
            assert problem.answer == nearest
        if kind == "below":
            assert problem.answer == max(centers, key=lambda n: centers[n][1])
        if kind == "shapes":
            (shape,) = {o.shape for o in objects if f"{o.shape}s" in problem.text} or {""}
            assert problem.answer == str(sum(o.shape == shape for o in objects))
            assert problem.corruption == "none" and problem.needed == ()
        if kind in ("read", "dots"):
            item = problem.scene.named(problem.target)
            assert problem.answer == (item.code if kind == "read" else str(item.dots))
            assert problem.target_box == (
                item.x,
                item.y + BANNER,
                item.x + 40,
                item.y + BANNER + 40,
            )


def counts(right=True, formatted=True, needed=(), used=(), iou=0.0, calls=0) -> TransformCounts:
    return TransformCounts(right, formatted, needed, used, iou, calls)


TURN = ("rotate_90", "crop")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # accuracy + .1 + needed share + .1 exact + .2 emerging - .5 (overuse + spurious)
        (counts(), 1 + 0.1 + 1 + 0.1),
        (counts(needed=TURN, used=TURN, iou=0.6, calls=2), 1 + 0.1 + 0.8 + 0.1),
        (counts(needed=TURN, used=("crop",), iou=0.6, calls=1), 1 + 0.1 + 0.3),
        (counts(needed=TURN, used=("rotate_90",), calls=1), 1 + 0.1 + 0.5),
        (counts(needed=TURN, used=("crop",), iou=0.1, calls=1), 0.05 + 0.1 + 0.05),
        (counts(False, False, TURN, (), 0, 0), 0),
        (counts(needed=TURN, used=(*TURN, "enhance"), iou=1, calls=3), 1.1 + 1 + 0.1 + 0.2 - 0.5),
        (counts(needed=("rotate_90",), used=("rotate_90",) * 3, calls=3), 1.1 + 1 + 0.1 - 0.5),
        (counts(used=("rotate_90", "flip_vertical"), calls=2), 1.1 + 1 - 1),
        (counts(needed=("crop",), used=("flip_vertical", "crop"), iou=1, calls=5), 2.1 - 1.5 - 0.5),
        (counts(used=("crop",), calls=1), 1.1 + 1),
    ],
)
def test_rewards_of_a_table(case: TransformCounts, expected: float):
    assert sum(codevision(case).values()) == pytest.approx(expected)
    penalties = codevision(case)["overuse"] + codevision(case)["spurious"]
    assert sum(process(case).values()) == pytest.approx(expected - penalties)


def test_applying_every_rotation_does_not_pay():
    """What a policy does without penalties: all turns, then a crop."""
    hack = counts(
        needed=TURN, used=("rotate_90", "rotate_180", "rotate_270", "crop"), iou=0.7, calls=4
    )
    honest = counts(needed=TURN, used=TURN, iou=0.7, calls=2)
    plain = counts(used=("rotate_90", "rotate_180", "rotate_270"), calls=3)
    assert sum(codevision(honest).values()) > sum(codevision(hack).values()) + 0.9
    assert sum(codevision(counts()).values()) > sum(codevision(plain).values()) + 1.9
    assert sum(process(plain).values()) > sum(codevision(plain).values()) + 1.9


@pytest.mark.parametrize("player", ["expert", "shrinking", "recovering", "single"])
@pytest.mark.parametrize("split", ["train", "test", "held_out"])
def test_experts_are_right_and_use_what_is_needed(player: str, split: str):
    errors = 0
    for seed in range(30):
        turns = play_scripted_episode(transform_env(split=split), player, seed).turns
        info = turns[-1].info
        errors += sum(turn.info.get("tool_errors", 0) for turn in turns)
        assert info["success"] and set(info["needed"]) == set(info["operations"])
        assert info["crop_iou"] > 0.5 or "crop" not in info["needed"]
        assert all(turn.info["formatted"] for turn in turns)
    assert (errors > 0) == (player == "recovering")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (tool_action("rotate", degrees=45), "90, 180 or 270"),
        (tool_action("rotate", degrees=90, image_index=9), "there is no image 9"),
        (tool_action("rotate", degrees=90, image_index=-1), "there is no image -1"),
        (tool_action("flip", direction="up"), "horizontal or vertical"),
        (tool_action("crop", box=[0, 0, 999, 999]), "not within"),
        (tool_action("crop", box=[5, 5, 1, 1]), "is empty"),
        (Message("assistant", "", (ToolCall("c", "", "x", "no JSON"),)), "cannot be read"),
    ],
)
def test_hostile_calls_are_answered_with_advice(call: Message, message: str):
    env = transform_env()
    (reply,), reward, terminated, _, info = env.step(call)
    assert message in reply.text and reply.text.endswith("or answer.") and reward == 0
    assert not terminated and info["tool_errors"] == 1 and len(env.images) == 1


def test_wrong_options_are_an_error():
    for options in ({"corruptions": ["blur"]}, {"reward": "all"}, {"seconds": 0}, {"code": 1}):
        with pytest.raises(UserError, match=next(iter(options))):
            make("agentrl/TransformedImages-v0", options)


@needs_sandbox
class TestCode:
    def test_programs_run_in_the_sandbox(self):
        png = encode_png(SOURCE)
        for code, _ in PROGRAMS[::3]:
            data, pixels = run_on_image(code, png, 5.0)
            view = view_after(full_view(30, 20), operations_of(code))
            assert (
                view is not None and np.asarray(Image.open(io.BytesIO(data))).shape == pixels.shape
            )
            np.testing.assert_array_equal(pixels, view.pixels(SOURCE, max(pixels.shape[:2])))

    @pytest.mark.parametrize("name", ["output", "processed_image", "img", "image"])
    def test_the_result_has_one_of_the_names(self, name: str):
        code = f"{name} = image.crop((0, 0, 4, 5))"
        assert run_on_image(code, encode_png(SOURCE), 5.0)[1].shape == (5, 4, 3)

    def test_drawing_changes_the_copy(self):
        expected = Image.fromarray(SOURCE)
        ImageDraw.Draw(expected).rectangle((2, 2, 6, 6), fill=(1, 2, 3))
        code = "draw.rectangle((2, 2, 6, 6), fill=(1, 2, 3))"
        _, pixels = run_on_image(code, encode_png(SOURCE), 5.0)
        np.testing.assert_array_equal(pixels, np.asarray(expected))

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            ("result = 3", "must be an image, not int"),
            ("result = image.turn(90)", "has no attribute 'turn'"),
            ("while True: pass", "limit of 1 s"),
            ("result = Image.new('RGB', (40000, 30000))", r"limit|Memory|pixels|memory"),
            ("result = Image.new('RGB', (400, 2))", "too long"),
            ("result = image.crop((5, 5, 5, 5))", "."),
            ("1 / 0", "ZeroDivisionError"),
            ("print('x' * 20_000_000)", "limit of"),
            ("raise SystemExit", "."),
        ],
    )
    def test_failing_programs_are_told(self, code: str, message: str):
        with pytest.raises(ValueError, match=message):
            run_on_image(code, encode_png(SOURCE), 1.0)

    def test_files_of_the_host_are_not_read(self):
        png = encode_png(SOURCE)
        with pytest.raises(ValueError, match="PermissionError"):
            run_on_image("result = np.fromfile('/etc/passwd', np.uint8)", png, 5.0)
        with pytest.raises(ValueError, match="open is not available"):
            run_on_image("result = Image.open('/etc/passwd')", png, 5.0)

    @pytest.mark.parametrize("player", ["expert", "single", "shrinking", "recovering"])
    def test_demonstrations_with_code(self, player: str):
        env = transform_env(code=True, kinds=["read"], reward="codevision")
        for seed in range(6):
            turns = play_scripted_episode(env, player, seed).turns
            info = turns[-1].info
            assert info["success"] and set(info["needed"]) == set(info["operations"])
            assert info["crop_iou"] > 0.5 and json.loads(json.dumps(dict(info))) == info
            if player == "single":
                assert len(turns) == 2 and turns[-1].reward > 2

    def test_an_image_of_a_program_can_be_named_later(self):
        env = transform_env(code=True)
        code = {"code": "result = image.resize((50, 40))", "description": "smaller"}
        (first,), *_ = env.step(tool_action("code_image_tool", **code))
        assert first.text == "Image 1: 50x40 pixels."
        code = {"code": "result = image.crop((0, 0, 10, 20))", "description": "", "image_index": 1}
        (second,), *_, info = env.step(tool_action("code_image_tool", **code))
        assert second.text == "Image 2: 10x20 pixels." and info["operations"] == ["resize", "crop"]
        assert info["crop_iou"] == 0 and env.images[2].view is None
