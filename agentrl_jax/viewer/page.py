"""The page that the front end was built into, and its form with data inside.

`page.html` holds everything that it shows; its content security policy names the digests of its
script and style, and allows no other.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any

from agentrl_jax.viewer.api import to_json

DATA_SLOT = '<script type="application/json" id="data">null</script>'
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"')


@cache
def page() -> str:
    """The built page."""
    return (files("agentrl_jax.viewer") / "page.html").read_text(encoding="utf-8")


def content_security_policy() -> str:
    """The policy of the page, with what only a header can say."""
    match = _POLICY.search(page())
    assert match is not None
    return f"{match.group(1)}; frame-ancestors 'none'"


def page_with_data(data: Any) -> str:
    """The page that shows `data` without a server."""
    before, slot, after = page().partition(DATA_SLOT)
    assert slot
    return before + slot.replace("null", script_json(data)) + after


def script_json(data: Any) -> str:
    """JSON that can stand in a script element: no "<", and ASCII only."""
    return to_json(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
