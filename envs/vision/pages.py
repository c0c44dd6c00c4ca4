"""`Library`: slides, charts and documents as images, with a search over their hidden words."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentrl_jax.envs.page_index import Page, PageIndex
from agentrl_jax.envs.vision.boxes import Box
from agentrl_jax.envs.vision.images import (
    BLACK,
    COLORS,
    GRAY,
    Image,
    blank,
    paint_box,
    write,
)
from agentrl_jax.envs.vision.splits import Generators, TaskKey

WIDTH, HEIGHT = 448, 336  # of a page, in pixels
# the word of the pages -> that of the questions
TOPICS = {"sales": "revenue", "staff": "employees", "costs": "spending", "visits": "guests"}
REGIONS = ("North", "South", "East", "West", "Coast", "Islands")
YEARS = (2021, 2022, 2023)
FORMS = ("table", "chart", "document")
PAGES_OF_COMPANY = len(TOPICS) * len(YEARS)
_STARTS, _ENDS = ("Bal", "Cor", "Dra", "Fel", "Gor", "Hal", "Jor", "Kel", "Lum", "Nev"), (
    "to", "vex", "min", "dar", "quist", "lon", "pex", "zur", "wick", "nor",
)  # fmt: skip
_MIDDLES = ("", "a", "e", "i", "o", "u")
MAX_PAGES = PAGES_OF_COMPANY * len(_STARTS) * len(_MIDDLES) * len(_ENDS)
PAGE_QUESTIONS = Generators(
    {
        "value": (
            "What is the {topic} of {company} in the {region} in {year}?",
            "In {year}, how large is {company}'s {topic} in the {region}?",
            "Name the {topic} that {company} had in the {region} in {year}.",
        ),
        "most": (
            "Which region has the largest {topic} of {company} in {year}?",
            "In {year}, where is {company}'s {topic} the largest?",
            "Name the region that led the {topic} of {company} in {year}.",
        ),
        "years": (
            "Is the {topic} of {company} in the {region} larger in {year} or in {later}?",
            "In which of {year} and {later} is {company}'s {topic} in the {region} larger?",
            "Of {year} and {later}, name the year with more {topic} of {company} in the {region}.",
        ),
        "least": ("", "Which region has the smallest {topic} of {company} in {year}?"),
        "sum": (
            "",
            "What is the {topic} of {company} in the {region} in {year} and {later} together?",
        ),
    },
    held_out=("least", "sum"),
)


@dataclass(frozen=True)
class Slide:
    """A page: one topic of a company in a year, a number for each region."""

    number: int
    company: str
    topic: str
    year: int
    form: str
    values: tuple[int, ...]  # of REGIONS; all different

    @property
    def title(self) -> str:
        return f"{self.company}: {self.topic} {self.year}"

    def box(self, region: int) -> Box:
        """Where the number of a region is read."""
        if self.form == "chart":
            left, top = self.bar(region)
            return left + 4, top - 20, left + 44, top
        top = 80 + 26 * region
        return 34, top, 200, top + 20

    def bar(self, region: int) -> tuple[int, int]:
        """The upper left corner of the bar of a region in a chart."""
        return 42 + 66 * region, HEIGHT - 40 - round(180 * self.values[region] / 1000)


@dataclass(frozen=True)
class PageQuestion:
    """A question about pages, its answer and where that is read."""

    text: str
    answer: str
    pages: tuple[int, ...]
    region: int | None  # None: all regions of the page


def company_name(seed: int, index: int) -> str:
    """The name of a company; those of one library are different."""
    order = np.random.default_rng([seed, 2]).permutation(MAX_PAGES // PAGES_OF_COMPANY)
    start, rest = divmod(int(order[index]), len(_MIDDLES) * len(_ENDS))
    middle, end = divmod(rest, len(_ENDS))
    return _STARTS[start] + _MIDDLES[middle] + _ENDS[end]


@dataclass(frozen=True)
class Library:
    """Pages that are functions of a seed, and the index of their words.

    Args:
        seed: of all pages.
        pages: how many.
        forms: of the pages, of `FORMS`.
    """

    seed: int = 0
    pages: int = MAX_PAGES
    forms: tuple[str, ...] = FORMS

    def slide(self, number: int) -> Slide:
        """A page."""
        return _make_slide(self.seed, number, self.forms)

    @property
    def index(self) -> PageIndex:
        """The index of the pages' words, without their numbers; built once a process."""
        return _index(self)


@lru_cache(8192)
def _make_slide(seed: int, number: int, forms: tuple[str, ...]) -> Slide:
    company, rest = divmod(number, PAGES_OF_COMPANY)
    topic, year = divmod(rest, len(YEARS))
    rng = np.random.default_rng([seed, 3, number])
    values = rng.choice(np.arange(100, 1000), len(REGIONS), replace=False)
    return Slide(
        number,
        company_name(seed, company),
        list(TOPICS)[topic],
        YEARS[year],
        forms[int(rng.integers(len(forms)))],
        tuple(int(value) for value in values),
    )


@lru_cache(2)
def _index(library: Library) -> PageIndex:
    slides = [library.slide(number) for number in range(library.pages)]
    return PageIndex(
        [Page(f"p{s.number}", f"{s.company} {s.topic} {s.year} {s.form} regions") for s in slides]
    )


@lru_cache(64)
def render_slide(slide: Slide) -> Image:
    """The pixels of a page at its full resolution; they must not be changed."""
    image = blank(WIDTH, HEIGHT)
    paint_box(image, (0, 0, WIDTH, 48), (225, 232, 240))
    write(image, 16, 12, slide.title, BLACK, 2)
    for i, (region, value) in enumerate(zip(REGIONS, slide.values)):
        if slide.form == "chart":
            left, top = slide.bar(i)
            paint_box(image, (left, top, left + 40, HEIGHT - 40), list(COLORS.values())[i])
            write(image, left + 10, top - 14, str(value))
            write(image, left, HEIGHT - 30, region)
            continue
        top = 80 + 26 * i
        if slide.form == "table":
            paint_box(image, (34, top + 20, 200, top + 21), GRAY)
            write(image, 40, top + 5, region)
            write(image, 150, top + 5, str(value))
        else:
            write(image, 40, top + 5, f"In the {region} it was {value}.")
    image.setflags(write=False)
    return image


def ask_pages(task: TaskKey, library: Library) -> PageQuestion:
    """The question of a task; its pages are functions of the task's seed."""
    rng = np.random.default_rng([task.seed, 1])
    base = int(rng.integers(library.pages // len(YEARS))) * len(YEARS)
    years = np.sort(rng.permutation(len(YEARS))[:2])
    first, second = (library.slide(base + int(year)) for year in years)
    region = int(rng.integers(len(REGIONS)))
    a, b = first.values[region], second.values[region]
    numbers: tuple[int, ...] = (first.number,)
    of_all = False
    match task.generator:
        case "value":
            answer = str(a)
        case "most" | "least":
            best = max if task.generator == "most" else min
            answer, of_all = REGIONS[first.values.index(best(first.values))], True
        case "years":
            if a == b:
                region = (region + 1) % len(REGIONS)
                a, b = first.values[region], second.values[region]
            answer, numbers = str((first if a > b else second).year), (first.number, second.number)
        case _:
            answer, numbers = str(a + b), (first.number, second.number)
    text = task.phrasing.format(
        topic=TOPICS[first.topic],
        company=first.company,
        region=REGIONS[region],
        year=first.year,
        later=second.year,
    )
    return PageQuestion(text, answer, numbers, None if of_all else region)
