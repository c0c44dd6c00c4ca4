"""Invented names for the entities of an encyclopedia; many differ in one word."""

from itertools import islice, product

import numpy as np

_ONSETS = ("b", "br", "d", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "v")
_VOWELS = ("a", "e", "i", "o", "u")
_ENDINGS = ("bor", "dal", "fen", "gar", "lin", "mond", "nik", "rup", "sen", "tov", "vik", "zan")
_FIRST_ENDINGS = ("ra", "lo", "mi", "nu", "die", "ska")
_FORMS = {
    "town": ("{}", "North {}", "{} Bridge", "Upper {}", "{} Ferry", "Old {}"),
    "company": ("{} Works", "{} Mills", "{} Trading", "{} Glass", "{} Shipping"),
    "river": ("{} River", "Little {} River", "{} Brook", "{} Water"),
}
_FORM_WORDS = {word for forms in _FORMS.values() for form in forms for word in form.split()}
_ADJECTIVES = (
    "Silent", "Golden", "Broken", "Hidden", "Bitter", "Distant", "Empty", "Frozen", "Gentle",
    "Hollow", "Iron", "Lonely", "Narrow", "Paper", "Quiet", "Restless", "Scarlet", "Tired",
    "Velvet", "Wandering", "Yellow", "Burning", "Crooked", "Drowned", "Early",
)  # fmt: skip
_NOUNS = (
    "Harbour", "Lantern", "Orchard", "Mirror", "Garden", "Winter", "Letter", "Clock", "Forest",
    "Island", "Kitchen", "Ladder", "Meadow", "Needle", "Ocean", "Piano", "Queen", "Raven",
    "Shadow", "Thief", "Umbrella", "Violin", "Window", "Anchor", "Candle",
)  # fmt: skip
_ENDS = (
    "", " Returns", " at Night", " in Spring", " by the Sea", " and Other Stories", " Again",
    " in the Rain", " Without a Name", " on Sunday", " for Two", " Under Glass",
    " of Yesterday", " Across the Bay", " Behind the Wall", " After All",
)  # fmt: skip


def _stems() -> list[str]:
    """5,100 words of two syllables."""
    parts = product(_ONSETS, _VOWELS, _ENDINGS, ("", "a", "e", "o", "u"))
    return [f"{onset}{vowel}{end}{last}".capitalize() for onset, vowel, end, last in parts]


def _long_stems(stems: list[str], count: int) -> list[str]:
    """The stems, then compounds of two, so many in all or all that there are."""
    compounds = (f"{a}{b.lower()}" for a, b in product(stems, stems) if a != b)
    return [*stems, *islice(compounds, max(0, count - len(stems)))]


def stem_of(kind: str, title: str) -> str:
    """What a title shares with similar ones: the surname, the stem, or a book's first words."""
    words = title.split()
    if kind == "person":
        return words[-1]
    if kind == "book":
        return " ".join(words[1:3])
    return next(word for word in words if word not in _FORM_WORDS)


def draw_names(rng: np.random.Generator, counts: dict[str, int]) -> dict[str, list[str]]:
    """Different names for so many entities of each kind.

    Surnames, towns, companies and rivers share their stems.
    """
    stems = [str(stem) for stem in rng.permutation(_stems())]
    firsts = [
        f"{onset}{vowel}{end}".capitalize()
        for onset, vowel, end in product(_ONSETS, _VOWELS, _FIRST_ENDINGS)
    ]
    names: dict[str, list[str]] = {}
    for kind, count in counts.items():
        if kind == "person":
            lasts = stems[: max(1, count // 20)]
            pairs = [f"{first} {last}" for first, last in product(firsts, lasts)]
        elif kind == "book":
            words = len(_ADJECTIVES) * len(_NOUNS)
            more = -(-count // words) - len(_ENDS)
            ends = (*_ENDS, *(f" of {stem}" for stem in stems[: max(0, more)]))
            pairs = [f"The {a} {n}{end}" for a, n, end in product(_ADJECTIVES, _NOUNS, ends)]
        else:
            forms = _FORMS[kind]
            used = _long_stems(stems, -(-count // len(forms)))[: -(-count // len(forms))]
            pairs = [form.format(stem) for form, stem in product(forms, used)]
        chosen = rng.permutation(len(pairs))[:count]
        names[kind] = [pairs[i] for i in chosen]
    return names
