"""`run_on_image`: a program of the agent that turns an image into another, in the sandbox."""

import ast
import base64
import re
from functools import lru_cache

from agentrl_jax.envs.vision.images import Image
from agentrl_jax.images.loading import ImageError, decode
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.python_tool import shared_sandbox
from agentrl_jax.sandbox.snippet import Snippet, describe_end
from agentrl_jax.syntax_trees import parse_statements

MAX_CODE = 2048  # characters, as in CodeVision
# imported before the programs start
MODULES = (
    "PIL.Image",
    "PIL.ImageChops",
    "PIL.ImageDraw",
    "PIL.ImageEnhance",
    "PIL.ImageFilter",
    "PIL.ImageOps",
    "PIL.PngImagePlugin",
    "numpy",
)
MAX_ASPECT = 200  # of an image, as in CodeVision
_PNG = b"\x89PNG"
_ALLOWED_IMPORTS = ("PIL", "numpy", "math")
_FORBIDDEN = frozenset(
    (
        *("open", "eval", "exec", "compile", "input", "breakpoint", "globals", "locals", "vars"),
        *("getattr", "setattr", "delattr", "os", "sys", "subprocess", "socket", "shutil"),
    )
)
_RESULT = re.compile(r"\nimage:([A-Za-z0-9+/=]+)\s*\Z")
# The names are those of CodeVision's tool; the first that the program has set is the result.
_RUNNER = """
import base64, io, math
import numpy
import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageOps
image = Image.open("image.png").convert("RGB")
img = image.copy()
scope = dict(globals(), draw=ImageDraw.Draw(img))
exec(compile(open("program.py").read(), "program.py", "exec"), scope)
unchanged = Image.open("image.png").convert("RGB")
for name in ("result", "output", "processed_image", "img", "image"):
    value = scope.get(name)
    is_given = any(value is given for given in (img, image))
    if value is None or (is_given and value == unchanged):
        value = img
        continue
    break
if isinstance(value, np.ndarray):
    value = Image.fromarray(value.astype(np.uint8))
if not isinstance(value, Image.Image):
    raise TypeError(f"{name} must be an image, not {type(value).__name__}")
file = io.BytesIO()
value.convert("RGB").save(file, "PNG")
print("\\nimage:" + base64.b64encode(file.getvalue()).decode())
"""


@lru_cache(8)
def image_sandbox(seconds: float) -> SandboxConfig:
    """The sandbox in which programs get Pillow and numpy."""
    limits = SandboxLimits(seconds=seconds, cpu_seconds=max(1.0, seconds), output_kb=8192)
    return SandboxConfig(limits=limits, modules=MODULES)


def check_code(code: str) -> None:
    """Raises ValueError where a program is too long, no Python, or names what is not on offer."""
    if len(code) > MAX_CODE:
        raise ValueError(f"the code has {len(code):,} characters; {MAX_CODE:,} are allowed")
    try:
        tree = parse_statements(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the code is not valid Python: {error!s:.100}") from None
    for node in ast.walk(tree):
        imported = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        for name in imported:
            if name.partition(".")[0] not in _ALLOWED_IMPORTS:
                raise ValueError(f"{name or 'this'} cannot be imported: PIL, numpy, math can")
        name = getattr(node, "id", getattr(node, "attr", ""))
        if name in _FORBIDDEN or (name.startswith("__") and name.endswith("__")):
            raise ValueError(f"{name} is not available in the tool's code")


def run_on_image(code: str, png: bytes, seconds: float) -> tuple[bytes, Image]:
    """The result of a program on an image, as a PNG file and as pixels.

    Raises:
        ValueError: the program is refused, fails, or gives no usable image.
    """
    check_code(code)
    config = image_sandbox(seconds)
    files = {"image.png": png, "program.py": code.encode(errors="replace")}
    outcome = shared_sandbox(config).run(Snippet(_RUNNER, files=files))
    if not outcome.succeeded:
        lines = outcome.stderr.strip().splitlines()
        reason = describe_end(outcome, config.limits) if outcome.exit_code != 1 else ""
        raise ValueError(reason or (lines[-1][:300] if lines else "the code failed"))
    match = _RESULT.search(outcome.stdout)
    if match is None:
        raise ValueError("the code gave no image")
    data = base64.b64decode(match[1])
    if not data.startswith(_PNG):
        raise ValueError("the code gave no image")
    try:
        pixels = decode(data)
    except ImageError as error:
        raise ValueError(str(error)) from None
    height, width = pixels.shape[:2]
    if max(width, height) >= MAX_ASPECT * min(width, height):
        raise ValueError(f"an image of {width}x{height} pixels is too long")
    return data, pixels
