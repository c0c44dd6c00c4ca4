"""Generated tables of documentation pages, between the markers <!-- name --> and <!-- /name -->."""

from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.storage.files import atomic_write


def replace_section(page: Path, name: str, text: str) -> None:
    """Replace the text between the markers, atomically.

    Raises:
        UserError: the page or its markers are missing.
    """
    before, _, after = _split_section(page, name)
    with atomic_write(page) as unfinished:
        unfinished.write_text(f"{before}{text}\n{after}")


def read_section(page: Path, name: str) -> str:
    """The text between the markers."""
    return _split_section(page, name)[1].removesuffix("\n")


def _split_section(page: Path, name: str) -> tuple[str, str, str]:
    """The text before, between and after; the markers stay in the first and the last part."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    try:
        before, remainder = page.read_text().split(opening)
        inside, after = remainder.split(closing)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{page} is no page with one pair of markers {opening.strip()} and {closing}: run "
            "from the repository"
        ) from error
    return before + opening, inside, closing + after
