"""Text of models, environments and servers for a terminal: nothing in it is a control sequence."""

import re
import unicodedata

# Control, format (directions of writing, zero width), surrogate, private, unassigned; separators of
# lines and of paragraphs.
UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
VARIATION_SELECTORS = range(0xFE00, 0xFE10)  # which change the width of a character
PICTURES = 0x2400  # of control characters: U+241B is that of ESC
REPLACEMENT = "\ufffd"
LINE_FEED = "↵"
_NOT_ASCII_TEXT = re.compile(r"[^\n\t -~]")


def _safe_character(match: re.Match[str]) -> str:
    character, code = match.group(), ord(match.group())
    if code < 0x20:
        return chr(PICTURES + code)
    unsafe = unicodedata.category(character) in UNSAFE_CATEGORIES or code in VARIATION_SELECTORS
    return REPLACEMENT if unsafe else character


def plain_text(text: str, encoding: str = "utf-8") -> str:
    """The text, whose line feeds and tabs stay, with a picture or a replacement for every other
    character that a terminal interprets, or that has no code in the terminal's encoding.
    """
    safe = _NOT_ASCII_TEXT.sub(_safe_character, text)
    return safe.encode(encoding, "replace").decode(encoding)


def one_line(text: str, max_characters: int, encoding: str = "utf-8") -> str:
    """The beginning of a text as a plain line; its line feeds are arrows."""
    cut = text[:max_characters] + ("…" if len(text) > max_characters else "")
    return plain_text(cut.replace("\n", LINE_FEED).replace("\t", " "), encoding)
