"""Syntax trees of Python text that a model wrote, from any thread."""

import ast
import threading
import warnings

# Up to Python 3.11 an interpreter has one counter of the depth of trees under construction. Where
# the garbage collector runs a callback meanwhile, as JAX has one, another thread may parse, and
# both fail with "SystemError: AST constructor recursion depth mismatch". The filters of warnings,
# too, are those of all threads.
_LOCK = threading.Lock()


def parse_statements(text: str) -> ast.Module:
    """The tree of some statements, without warnings of unknown escapes in strings.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse`.
    """
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def parse_expression(text: str) -> ast.expr:
    """The tree of one expression, else as `parse_statements`."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval").body
