"""Python text is parsed by several threads at the same time."""

import ast
import gc
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentrl_jax.syntax_trees import parse_expression, parse_statements

TEXT = "f([(1, 2.5), {'a': (3,)}, [4, [5]]], b={'c': {'d': (6, 7)}})"


@pytest.fixture
def collections_switch_threads():
    """The garbage is collected often, with a callback during which another thread may run."""

    def callback(phase: str, info: dict[str, int]) -> None:
        sum(range(300))

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(callback)
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50, 5, 5)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)
    gc.callbacks.remove(callback)


def test_threads_parse_as_one_does(collections_switch_threads: None):
    expected = ast.dump(ast.parse(TEXT, mode="eval").body)

    def parse(_: int) -> set[str]:
        return {ast.dump(parse_expression(TEXT)) for _ in range(2000)}

    with ThreadPoolExecutor(4) as pool:
        assert set().union(*pool.map(parse, range(4))) == {expected}


def test_an_unknown_escape_gives_no_warning_and_damaged_text_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ast.dump(parse_statements(r"x = '\d'")) == ast.dump(parse_statements(r"x = '\\d'"))
        assert ast.unparse(parse_expression(r"'\d'")) == r"'\\d'"
    with pytest.raises(SyntaxError):
        parse_expression("x = 1")
    with pytest.raises(SyntaxError):
        parse_statements("x = (")
