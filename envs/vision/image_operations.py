"""Operations on images: those of a program, found in its syntax, and what they do to a view."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.views import View
from agentrl_jax.syntax_trees import parse_statements

ROTATIONS = ("rotate_90", "rotate_180", "rotate_270")  # counterclockwise
FLIPS = ("flip_horizontal", "flip_vertical")
TURNS = (*ROTATIONS, *FLIPS)
CORE = (*TURNS, "crop")
MAX_OPERATIONS = 8  # that are counted of one program
_TRANSPOSE = {
    "ROTATE_90": "rotate_90",
    "ROTATE_180": "rotate_180",
    "ROTATE_270": "rotate_270",
    "FLIP_LEFT_RIGHT": "flip_horizontal",
    "FLIP_TOP_BOTTOM": "flip_vertical",
}
_NAMED = {
    "mirror": "flip_horizontal",
    "fliplr": "flip_horizontal",
    "flip": "flip_vertical",
    "flipud": "flip_vertical",
}
_OTHERS = ("enhance", "filter", "resize", "autocontrast", "equalize", "convert", "invert", "point")


@dataclass(frozen=True)
class Operation:
    """An operation of a program.

    Args:
        name: of CORE or another.
        box: of a crop that is written in numbers.
        keeps_size: a quarter turn within the old width and height, which cuts unless these are
            equal.
    """

    name: str
    box: tuple[float, float, float, float] | None = None
    keeps_size: bool = False


def inverse(operation: str) -> str:
    """The operation that undoes a rotation or a flip."""
    return {"rotate_90": "rotate_270", "rotate_270": "rotate_90"}.get(operation, operation)


def apply(view: View, operation: str) -> View:
    """The view after a rotation or a flip."""
    if operation in FLIPS:
        return view.flipped(operation == "flip_horizontal")
    return view.turned(int(operation.removeprefix("rotate_")))


def operations_of(code: str) -> list[Operation]:
    """The operations that a program names, in the order of its syntax, at most 8.

    Each is counted once wherever it stands, in a loop too. Calls of Pillow and numpy with numbers
    as arguments are read; others are operations without a box, or none.

    Raises:
        SyntaxError: the text is no Python program.
    """
    reader = _Reader()
    try:
        reader.visit(parse_statements(code))
    except (RecursionError, MemoryError, ValueError) as error:
        raise SyntaxError(str(error)) from None
    return reader.operations[:MAX_OPERATIONS]


def _number(node: ast.expr | None) -> float | None:
    """The number that an expression is; None: it is something else."""
    try:
        value = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


class _Reader(ast.NodeVisitor):
    """Collects operations, arguments and objects before the calls that use them."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return
        name, arguments = node.func.attr, [*node.args, *(k.value for k in node.keywords)]
        if name == "crop":
            self.operations.append(Operation("crop", _box(arguments)))
        elif name == "rotate":
            turn = _rotation(_number(arguments[0] if arguments else None))
            expands = any(k.arg == "expand" for k in node.keywords)
            is_quarter = turn.name in ("rotate_90", "rotate_270")
            self.operations.append(replace(turn, keeps_size=is_quarter and not expands))
        elif name == "rot90":
            count = 1.0 if len(arguments) < 2 else _number(arguments[1])
            self.operations.append(_rotation(None if count is None else 90 * count))
        elif name == "transpose" and arguments:
            constant = getattr(arguments[0], "attr", "")
            if constant in _TRANSPOSE:
                self.operations.append(Operation(_TRANSPOSE[constant]))
        elif name in _NAMED:
            self.operations.append(Operation(_NAMED[name]))
        elif name in _OTHERS:
            self.operations.append(Operation(name))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """array[y1:y2, x1:x2]"""
        self.generic_visit(node)
        parts = node.slice.elts[:2] if isinstance(node.slice, ast.Tuple) else []
        if len(parts) == 2 and all(isinstance(p, ast.Slice) and p.step is None for p in parts):
            rows, columns = parts
            assert isinstance(rows, ast.Slice) and isinstance(columns, ast.Slice)
            ends = [_number(e) for e in (columns.lower, rows.lower, columns.upper, rows.upper)]
            self.operations.append(Operation("crop", _as_box(ends)))


def _rotation(degrees: float | None) -> Operation:
    name = "rotate_other" if degrees is None else f"rotate_{degrees % 360:g}"
    return Operation(name if name in ROTATIONS else "rotate_other")


def _box(arguments: Sequence[ast.expr]) -> tuple[float, float, float, float] | None:
    elements = getattr(arguments[0], "elts", []) if arguments else []
    return _as_box([_number(element) for element in elements])


def _as_box(values: Sequence[float | None]) -> tuple[float, float, float, float] | None:
    numbers = [value for value in values if value is not None]
    if len(values) != 4 or len(numbers) != 4:
        return None
    x1, y1, x2, y2 = numbers
    return x1, y1, x2, y2


def view_after(view: View | None, operations: Sequence[Operation]) -> View | None:
    """What a program's result shows of the source; None: that does not follow from its syntax.

    Args:
        view: of the image that the program is given, in pixels of the source.
        operations: of the program.
    """
    for operation in operations:
        if view is None or operation.name in ("rotate_other", "resize"):
            return None
        if operation.keeps_size and view.size[0] != view.size[1]:
            return None
        if operation.name in TURNS:
            view = apply(view, operation.name)
        elif operation.name == "crop":
            # a negative corner pads the image, or counts from the end
            if operation.box is None or min(operation.box[:2]) < 0:
                return None
            box = boxes.clipped(operation.box, *view.size)
            view = view.crop(box) if boxes.area(box) else None
    return view
