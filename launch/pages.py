"""Tables in documentation pages, between marks that a command finds again: <!-- name --> ... <!-- /name -->"""

from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.replacing import replacing


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between the marks; others may read the page meanwhile. Raises UserError where page or marks are not there."""
    before, _, after = _split(page, name)
    with replacing(page) as unfinished:
        unfinished.write_text(f"{before}{text}\n{after}")


def between(page: Path, name: str) -> str:
    """What stands between the marks."""
    return _split(page, name)[1].removesuffix("\n")


def _split(page: Path, name: str) -> tuple[str, str, str]:
    """With the marks in the first and the last part."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    try:
        before, rest = page.read_text().split(opening)
        inside, after = rest.split(closing)
    except (OSError, ValueError) as error:
        raise UserError(f"{page} is no page with one pair of marks {opening.strip()} and {closing}: run from the repository") from error
    return before + opening, inside, closing + after
