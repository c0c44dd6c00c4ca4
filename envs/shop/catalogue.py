"""`Product`: the products of the shop, sampled from a grammar."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np

COLORS = ("black", "white", "red", "blue", "green", "grey", "brown", "yellow")
SIZES = ("x-small", "small", "medium", "large", "x-large")
SYLLABLES = (
    "bel",
    "cor",
    "dan",
    "fen",
    "gor",
    "hal",
    "kip",
    "lum",
    "mar",
    "nov",
    "ost",
    "pel",
    "ros",
    "sol",
    "tav",
    "vek",
    "wob",
    "zan",
)
ASIN_ALPHABET = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
FEATURE_TEMPLATES = (
    "{}, so you need not think about it again",
    "made to be {}",
    "{} from the first day on",
    "tested by us: it is {}",
)
DESCRIPTION_TEMPLATES = (
    "This {kind} is what {brand} is known for.",
    "{brand} has made every {kind} in the same quiet town for years.",
    "A {kind} that you will want to keep, by {brand}.",
    "Whoever looks for a good {kind} ends at {brand}.",
)


@dataclass(frozen=True)
class Department:
    """Kinds of products that share attributes and options; `prices` is (low, high) in dollars."""

    path: tuple[str, str]
    kinds: tuple[str, ...]
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    prices: tuple[int, int]


def _make_department(
    path: str, kinds: str, attributes: str, prices: tuple[int, int], **options: tuple[str, ...]
) -> Department:
    top, shelf = path.split(" > ")
    return Department(
        (top, shelf),
        tuple(kinds.split(", ")),
        tuple(attributes.split(", ")),
        MappingProxyType(options),
        prices,
    )


DEPARTMENTS = (
    _make_department(
        "home & kitchen > cookware",
        "frying pan, sauce pan, baking tray, tea kettle, stock pot",
        "non stick, dishwasher safe, oven safe, rust proof, easy to clean, scratch resistant, "
        "heavy duty, quick heating",
        (12, 90),
        color=COLORS,
        size=("8 inch", "10 inch", "12 inch", "14 inch"),
    ),
    _make_department(
        "home & kitchen > furniture",
        "coffee table, side table, book case, arm chair, storage bench",
        "easy to assemble, space saving, solid wood, wall mounted, height adjustable, water "
        "resistant, fully foldable, child safe",
        (35, 400),
        color=COLORS,
        size=("small", "medium", "large"),
    ),
    _make_department(
        "clothing > outerwear",
        "rain jacket, denim jacket, wool coat, winter parka, fleece hoodie",
        "machine washable, wind proof, slim fit, fully lined, quick drying, hand made, ultra "
        "light, relaxed fit",
        (20, 180),
        color=COLORS,
        size=SIZES,
    ),
    _make_department(
        "clothing > footwear",
        "running shoe, dress shoe, hiking boot, canvas sneaker, house slipper",
        "arch support, slip resistant, memory foam, steel toe, vegan leather, rubber sole, wide "
        "fit, odour control",
        (15, 150),
        color=COLORS,
        size=("6", "7", "8", "9", "10", "11"),
    ),
    _make_department(
        "electronics > audio",
        "wireless headphone, bluetooth speaker, studio microphone, clock radio, record player",
        "noise cancelling, fast charging, long battery, hands free, voice controlled, high "
        "resolution, plug and play, shock proof",
        (18, 320),
        color=COLORS,
        bundle=("alone", "with case", "with stand"),
    ),
    _make_department(
        "beauty > skin care",
        "face cream, hand cream, body lotion, lip balm, hand soap",
        "fragrance free, cruelty free, paraben free, oil free, dermatologist tested, long "
        "lasting, plant based, for sensitive skin",
        (4, 60),
        scent=("lavender", "vanilla", "rose", "citrus", "mint"),
        size=("1 ounce", "2 ounce", "4 ounce", "8 ounce"),
    ),
    _make_department(
        "grocery > snacks",
        "nut bar, rice cracker, rice cake, oat bar, mango chip",
        "gluten free, sugar free, low sodium, high protein, non gmo, dairy free, kosher "
        "certified, individually wrapped",
        (3, 45),
        flavor=("sea salt", "honey", "chili", "cinnamon", "cocoa"),
        size=("twin pack", "six pack", "ten pack"),
    ),
    _make_department(
        "sports > outdoor",
        "camping tent, yoga mat, water bottle, sleeping bag, climbing rope",
        "leak proof, extra thick, flame retardant, bpa free, non slip, compression packed, four "
        "season, tear resistant",
        (9, 240),
        color=COLORS,
        size=("small", "medium", "large", "x-large"),
    ),
)
DEPARTMENT_KINDS = tuple(
    (department, kind) for department in DEPARTMENTS for kind in department.kinds
)


@dataclass(frozen=True)
class Product:
    """A product: the fields its page shows, and those that only the reward and the search read."""

    asin: str  # the text of its link
    title: str
    price: float
    options: Mapping[str, tuple[str, ...]]
    features: tuple[str, ...]
    description: str
    attributes: tuple[str, ...]
    category: tuple[str, ...]
    query: str
    nouns: frozenset[str]  # in the title

    @property
    def text(self) -> str:
        """The text of its page, in lower case."""
        return " ".join([self.title, *self.features, self.description]).lower()


def _sample_in_order(
    rng: np.random.Generator, pool: tuple[str, ...], count: int
) -> tuple[str, ...]:
    """A uniform subset of `count` elements, in the order of the pool."""
    return tuple(pool[i] for i in sorted(rng.choice(len(pool), count, replace=False)))


def _sample_product(rng: np.random.Generator, department: Department, kind: str) -> Product:
    asin = "B" + "".join(ASIN_ALPHABET[i] for i in rng.integers(len(ASIN_ALPHABET), size=9))
    brand = "".join(SYLLABLES[i] for i in rng.integers(len(SYLLABLES), size=2)).capitalize()
    attributes = tuple(rng.permutation(_sample_in_order(rng, department.attributes, 4)).tolist())
    low, high = department.prices
    return Product(
        asin=asin,
        title=f"{brand} {kind}, {attributes[0]}, {attributes[1]}",
        price=round(float(low * (high / low) ** rng.random()), 2),
        options=MappingProxyType(
            {
                name: _sample_in_order(rng, pool, int(rng.integers(2, 4)))
                for name, pool in department.options.items()
            }
        ),
        features=tuple(
            FEATURE_TEMPLATES[rng.integers(len(FEATURE_TEMPLATES))].format(attribute)
            for attribute in attributes
        ),
        description=DESCRIPTION_TEMPLATES[rng.integers(len(DESCRIPTION_TEMPLATES))].format(
            kind=kind, brand=brand
        ),
        attributes=attributes,
        category=(*department.path, f"{kind}s"),
        query=f"{kind}s",
        nouns=frozenset(kind.split()),
    )


@lru_cache(maxsize=4)
def catalogue(seed: int, count: int) -> tuple[Product, ...]:
    """`count` products, equally many of each kind (give or take one).

    A longer catalogue of the same seed starts with the shorter one.
    """
    return tuple(
        _sample_product(
            np.random.default_rng([seed, number]), *DEPARTMENT_KINDS[number % len(DEPARTMENT_KINDS)]
        )
        for number in range(count)
    )
