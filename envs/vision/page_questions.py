"""`PageQuestions`: questions that an agent answers by searching pages and looking at them."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.options import checked_bool, checked_choice, checked_choices, checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.answers import is_right, thought_of
from agentrl_jax.envs.vision.image_environment import ImageEnvironment, Reply, look
from agentrl_jax.envs.vision.pages import (
    FORMS,
    HEIGHT,
    MAX_PAGES,
    PAGE_QUESTIONS,
    PAGES_OF_COMPANY,
    REGIONS,
    WIDTH,
    Library,
    PageQuestion,
    Slide,
    ask_pages,
    render_slide,
)
from agentrl_jax.envs.vision.views import View, full_view
from agentrl_jax.messages import Message, user

_ACTION = re.compile(
    r"<(search|bbox|answer)>((?:(?!</?(?:search|bbox|answer|think)>).)*)</\1>\s*", re.DOTALL
)
REWARDS = ("outcome", "vrag")
_PADDING = 4  # pixels around a crop; VRAG-RL's evaluation has 28 on larger pages
_NO_QUESTION = PageQuestion("", "", (), None)
_MAX_RESULTS = 50  # that a search considers


def ndcg(relevances: Sequence[float], num_relevant: int) -> float:
    """DCG over the ideal DCG of a ranking.

    DCG = sum_i (2^s_i - 1) / log2(i + 1), i = 1, 2, ...; the ideal one has `num_relevant` items of
    relevance 1 first. VRAG-RL (arXiv 2505.22019): the pages in the order in which they were
    retrieved, s_i = 1 for one that the question needs.

    Args:
        relevances: s_i, in order.
        num_relevant: items that are relevant; 0: the result is 0.
    """
    gain = sum((2**s - 1) / math.log2(i + 1) for i, s in enumerate(relevances, 1))
    ideal = sum(1 / math.log2(i + 1) for i in range(1, num_relevant + 1))
    return gain / ideal if ideal else 0.0


def turn_text(thought: str, tag: str, body: str) -> str:
    """A turn in VRAG-RL's form."""
    return f"<think>{thought.strip()}</think><{tag}>{body}</{tag}>"


def _expert_action(env: "PageQuestions", rng: np.random.Generator) -> str:
    """Searches in the pages' own words, looks at the numbers that it needs, and answers."""
    facts = env.facts()
    for number in env.question.pages if env.turns_left > 1 else ():
        slide = env.library.slide(number)
        if number not in env.retrieved:
            return turn_text(
                f"{facts}I need the page of {slide.company} on {slide.topic} in {slide.year}.",
                "search",
                f"{slide.company} {slide.topic} {slide.year}",
            )
        if env.crops and not env.has_read(number) and env.retrieved[-1] == number:
            box = env.last_view.shown_box(env.needed_box(slide), env.view)
            return turn_text(
                f"The page {slide.title} has what I need; I look closer.",
                "bbox",
                json.dumps(boxes.rounded(box)),
            )
    return turn_text(facts or "I saw the pages.", "answer", env.question.answer)


def _random_action(env: "PageQuestions", rng: np.random.Generator) -> str:
    """Searches a uniform page, or answers with a uniform number, region or year."""
    slide = env.library.slide(int(rng.integers(env.library.pages)))
    if env.turns_left > 1 and rng.random() < 0.5:
        return turn_text("I look around.", "search", slide.company)
    guess = (str(slide.values[0]), REGIONS[int(rng.integers(len(REGIONS)))], str(slide.year))
    return turn_text("I guess.", "answer", guess[int(rng.integers(3))])


class PageQuestions(ImageEnvironment):
    """VRAG-RL's turns (arXiv 2505.22019): search pages, look at a part of one, answer.

    A search shows the best page that was not shown yet; a box shows that part of the last image
    from the page's full resolution. The index is BM25 over words that the agent does not see, and
    questions name a topic in other words than the pages do. An answer ends the episode. `info`
    holds `ndcg` of the pages shown, `rank`, at which place the first needed page came (0: not yet),
    `evidence`, the share of the needed numbers that a crop showed, `answer`, `gold`, `void` and
    `formatted`; `success` is the right answer.

    Scripted policies: `random`, `expert`, and `mixture` and `weak`, in each turn the expert with
    probability .85 and .5.

    Args:
        split: "train", "test" or "held_out" (docs/vision_worlds.md).
        kinds: of questions; empty: all of the split.
        reward: "outcome", or "vrag", which adds the format and NDCG.
        crops: whether parts of pages may be looked at.
        pages: of the library.
        world_seed: of the library.
        forms: of its pages: table, chart, document; empty: all.
        view: longer side of the images that are shown.
        horizon: turns before truncation.
        instruction: whether the opening says how to act.
    """

    generators = PAGE_QUESTIONS
    reward_parts = ("outcome", "format", "retrieval")
    reward_bounds = (0.0, 1.0)
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "expert": _expert_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.85),
            "weak": MixturePolicy(_expert_action, _random_action, 0.5),
        }
    )

    def __init__(
        self,
        split: str = "train",
        kinds: Sequence[str] = (),
        reward: str = "vrag",
        crops: bool = True,
        pages: int = 600,
        world_seed: int = 0,
        forms: Sequence[str] = (),
        view: int = 168,
        horizon: int = 6,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(split, kinds, horizon, instruction, render_mode)
        self.reward = checked_choice("reward", reward, REWARDS)
        self.crops = checked_bool("crops", crops)
        pages = checked_int("pages", pages, PAGES_OF_COMPANY, MAX_PAGES)
        self.library = Library(
            checked_int("world_seed", world_seed, 0, 2**31),
            pages - pages % PAGES_OF_COMPANY,
            checked_choices("forms", forms, FORMS),
        )
        self.view = checked_int("view", view, 28, 4096)
        box = ", <bbox>[x1, y1, x2, y2]</bbox> of the last image" if crops else ""
        self.forms = f"<think>...</think>, then <search>words</search>{box} or <answer>...</answer>"
        self.rules = (
            f"Answer a question about pages in at most {horizon} turns. Write {self.forms}."
        )
        self.question = _NO_QUESTION
        self._rewind()

    def _open(self) -> None:
        self.question = ask_pages(self.task, self.library)

    def _rewind(self) -> None:
        self.retrieved: tuple[int, ...] = ()  # the pages, in order
        self.last_view: View = full_view(WIDTH, HEIGHT)  # of the page that was shown last
        self.looks: tuple[tuple[int, View], ...] = ()  # what was shown in detail
        self.searches = 0

    def _opening_messages(self) -> Messages:
        instruction = f" Write {self.forms}." if self.instruction else ""
        return (user(f"{self.question.text}{instruction}"),)

    def needed_box(self, slide: Slide) -> boxes.Box:
        """Where the numbers are that the question needs of a page."""
        region = self.question.region
        regions = range(len(REGIONS)) if region is None else [region]
        return boxes.around([slide.box(i) for i in regions])

    def has_read(self, number: int) -> bool:
        """Whether a crop showed all that the question needs of a page."""
        box = self.needed_box(self.library.slide(number))
        return any(
            page == number and boxes.intersection(view.box, box) >= 0.9 * boxes.area(box)
            for page, view in self.looks
        )

    def facts(self) -> str:
        """What the pages that were looked at tell of the question, no more."""
        facts = ""
        for number in self.question.pages:
            if number in self.retrieved and (self.has_read(number) or not self.crops):
                slide, region = self.library.slide(number), self.question.region
                if region is None:  # the largest or smallest of all
                    order = np.argsort(slide.values)[::-1]
                    fact = "from most to least " + ", ".join(REGIONS[i] for i in order)
                else:
                    fact = f"{REGIONS[region]} {slide.values[region]}"
                facts += f"{slide.title}: {fact}. "
        return facts

    def _respond(self, message: Message) -> Reply:
        turn = thought_of(message.text[:20_000])
        action = _ACTION.fullmatch(turn[1]) if turn is not None else None
        tag, body = (action[1], action[2].strip()) if action is not None else ("", "")
        observation: Messages = ()
        if tag == "search":
            observation = self._search(body)
        elif tag == "bbox" and self.crops:
            observation = self._crop(body)
        elif tag != "answer":
            tag, observation = "", (user(f"Invalid action. Write {self.forms}."),)
        relevant = [float(number in self.question.pages) for number in self.retrieved]
        needed = self.question.pages
        info: dict[str, Any] = {
            "ndcg": ndcg(relevant, len(needed)),
            "rank": relevant.index(1.0) + 1 if 1.0 in relevant else 0,
            "evidence": sum(map(self.has_read, needed)) / len(needed),
            "formatted": bool(tag),
            "void": not tag,
            "stopped": tag == "answer",
            "answer": body if tag == "answer" else None,
            "gold": self.question.answer,
        }
        if tag != "answer":
            return Reply(observation, info=info)
        right = is_right(body, self.question.answer)
        return Reply((), right, self._parts(right, info["ndcg"]), info)

    def _parts(self, right: bool, retrieval: float) -> dict[str, float]:
        """The reward; VRAG-RL's is 0 for an answer without a search."""
        if self.reward == "outcome":
            return {"outcome": float(right)}
        searched = float(self.searches > 0)
        return {
            "outcome": 0.7 * right * searched,
            "format": 0.1 * searched,
            "retrieval": 0.2 * retrieval * searched,
        }

    def _search(self, query: str) -> Messages:
        self.searches += 1
        pages = self.library.index.search(query, _MAX_RESULTS)
        numbers = [int(page.title[1:]) for page in pages]
        new = [number for number in numbers if number not in self.retrieved]
        if not new:
            return (user("No further page was found."),)
        self.retrieved += (new[0],)
        self.last_view = full_view(WIDTH, HEIGHT)
        return (self._shown_page(""),)

    def _crop(self, body: str) -> Messages:
        if not self.retrieved:
            return (user("Error: there is no image yet; search for a page first."),)
        view = self.last_view
        try:
            box = boxes.checked_box(boxes.numbers_in(body), *view.shown_size(self.view))
        except ValueError as error:
            return (user(f"Error: {error}."),)
        region = view.source_box(view.from_shown(box, self.view))
        self.last_view = View(boxes.padded(region, _PADDING, WIDTH, HEIGHT))
        self.looks += ((self.retrieved[-1], self.last_view),)
        return (self._shown_page("The part of the page."),)

    def _shown_page(self, text: str) -> Message:
        slide = self.library.slide(self.retrieved[-1])
        pixels = self.last_view.pixels(render_slide(slide), self.view)
        size = f"{pixels.shape[1]}x{pixels.shape[0]} pixels."
        return look(f"{text} {size}".strip(), pixels)
