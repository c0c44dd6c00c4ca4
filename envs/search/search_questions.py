"""`SearchQuestions`: questions that an agent answers by searching an encyclopedia."""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import (
    check_no_options,
    checked_bool,
    checked_choice,
    checked_choices,
    checked_int,
    checked_number,
)
from agentrl_jax.envs.page_index import Page, PageIndex, snippet
from agentrl_jax.envs.search.answers import exact_match, f1_score
from agentrl_jax.envs.search.facts import make_world
from agentrl_jax.envs.search.files import file_pages, read_questions
from agentrl_jax.envs.search.prose import FILLERS
from agentrl_jax.envs.search.protocols import PROTOCOLS, is_role_sequence, role_tags
from agentrl_jax.envs.search.questions import (
    FACTS,
    KINDS,
    MAX_HOPS,
    SPLITS,
    Question,
    draw_question,
    given_question,
)
from agentrl_jax.envs.search.retrieved_pages import (
    RetrievedPages,
    load_retriever,
    searched_pages,
)
from agentrl_jax.envs.search.scripted import SCRIPTED_POLICIES
from agentrl_jax.envs.search.team import team_action
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.tool_environment import ToolEnvironment
from agentrl_jax.tools import Tool, tool

SCORES = {"exact_match": exact_match, "f1": f1_score}
MAX_PAGES = 1_000_000
MAX_QUERIES = 4  # of one call, where a protocol takes several
_NO_QUESTION = Question("", ("",), "", ())
_INDEX_LOCK = threading.Lock()  # so that no index is built twice


class SearchQuestions(ToolEnvironment, Forkable):
    """A question over one to four facts on different pages: search, read, answer.

    The pages are a generated encyclopedia, or those of `folder`. A turn with an answer ends the
    episode; `success` is an exact match after SQuAD's normalization. In the protocol `planner` the
    agent only stops, and a reader by rules answers: rightly if every page that the question needs
    was shown, else with nothing. `info` holds `called_tools`, `formatted`, `void`, `stopped`,
    `answer`, `gold`, `kind` and `evidence`, the share of the needed pages that were shown.

    The reset option `question`, a text and its right answer, takes the place of a generated one.
    Scripted policies: `random`, `expert`, `hasty`, which gives up in a turn with probability .15,
    and `mixture`, the expert with probability .9, else random.

    Args:
        pages, world_seed: of the generated encyclopedia; it is built once a process.
        fillers: sentences of a page, of about 50 characters, that tell no fact.
        facts: that questions are over, of `questions.FACTS`; none: all.
        hops: facts of a question, 1 to 4; several: uniform between them.
        kinds: of questions: "chain", "comparison" (of 2 or 4 hops), "count".
        split: "train"; "pages", which names other pages; or "test", in other phrasings, too.
        protocol: "plain", "search_r1", "planner" or "afm" (docs/search.md).
        retriever: names a function that searches texts (`RetrievedPages`), such as
            "agentrl_jax.models.dense_index:sentence_search" or
            "agentrl_jax.envs.search.tantivy_search:tantivy_search"; empty: BM25 of SQLite.
        top_k: results of a search.
        page_characters: of a page's text that are shown.
        horizon: turns before truncation.
        reward: of the answer: "exact_match" or "f1".
        format_reward: for an episode with an answer and without a malformed turn.
        search_cost: taken off for each query.
        turn_cost: taken off for each turn.
        instruction: whether the opening says how to search and answer.
        folder: of pages as JSON lines, in place of the encyclopedia.
        questions: a file in HotpotQA's form as JSON lines, in place of generated questions.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {**SCRIPTED_POLICIES, "team": team_action}
    )
    program_options: ClassVar[tuple[str, ...]] = ("retriever",)

    def __init__(
        self,
        pages: int = 20_000,
        world_seed: int = 0,
        hops: int | Sequence[int] = (1, 2, 3, 4),
        kinds: Sequence[str] = KINDS,
        split: str = "train",
        protocol: str = "search_r1",
        retriever: str = "",
        top_k: int = 3,
        page_characters: int = 1000,
        horizon: int = 14,
        reward: str = "exact_match",
        format_reward: float = 0.0,
        search_cost: float = 0.0,
        turn_cost: float = 0.0,
        instruction: bool = True,
        folder: str = "",
        questions: str = "",
        fillers: int = 3,
        facts: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.num_pages = checked_int("pages", pages, 100, MAX_PAGES)
        self.world_seed = checked_int("world_seed", world_seed, 0, 2**31)
        numbers = [hops] if isinstance(hops, int) else list(hops)
        self.hops = tuple(checked_int("hops", n, 1, MAX_HOPS) for n in numbers)
        self.kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        self.split = checked_choice("split", split, SPLITS)
        for kind in self.kinds:
            checked_choice("kinds", kind, KINDS)
        if not self.kinds or not self.hops:
            raise UserError("kinds and hops must each name at least one")
        if self.kinds == ("comparison",) and not {2, 4} & set(self.hops):
            raise UserError(f"comparisons have 2 or 4 hops, not {hops}")
        self.protocol = PROTOCOLS[checked_choice("protocol", protocol, PROTOCOLS)]
        self.max_calls = 1 if self.protocol.start else ToolEnvironment.max_calls
        self.facts = checked_choices("facts", facts, FACTS)
        self.fillers = checked_int("fillers", fillers, 0, len(FILLERS))
        self.retriever = retriever
        self.top_k = checked_int("top_k", top_k, 1, 20)
        self.page_characters = checked_int("page_characters", page_characters, 20, 20_000)
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.score = SCORES[checked_choice("reward", reward, SCORES)]
        self.format_reward = checked_number("format_reward", format_reward, 0, 10)
        self.search_cost = checked_number("search_cost", search_cost, 0, 10)
        self.turn_cost = checked_number("turn_cost", turn_cost, 0, 10)
        most_queries = self.max_calls * (MAX_QUERIES if self.protocol.reads else 1)
        most_cost = horizon * (self.search_cost * most_queries + self.turn_cost)
        self.reward_bounds = (-most_cost, 1.0 + self.format_reward)
        self.instruction = checked_bool("instruction", instruction)
        if retriever:
            load_retriever(retriever)  # so that a wrong name is reported here
        if folder and not questions:
            raise UserError("the option folder needs the option questions, about its pages")
        self.folder, self.questions = folder, questions
        if questions:  # so that a wrong file is reported here
            read_questions(questions)
            file_pages(folder, questions)
        self.rules = (
            f"Answer the question in at most {horizon} turns; its facts are on different pages of "
            f"an encyclopedia. {self.protocol.instruction}"
        )
        self.question = _NO_QUESTION
        self._rewind()

    @property
    def index(self) -> PageIndex | RetrievedPages:
        """The pages, shared by all environments of the process."""
        with _INDEX_LOCK:
            generated = (self.world_seed, self.num_pages, self.fillers)
            return searched_pages(generated, self.retriever, self.folder, self.questions)

    @property
    def turns_left(self) -> int:
        return self.horizon - len(self._step_history)

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        room = len(self.protocol.output) + MAX_QUERIES * self.top_k * (self.page_characters + 500)
        search = tool(self.search, Tool.seconds, room)
        return (
            (search, tool(self.fetch, Tool.seconds, room)) if self.protocol.fetches else (search,)
        )

    def search(self, query: str) -> str:
        """Search the encyclopedia.

        Args:
            query: words to search for
        """
        queries = query.split("\n")[:MAX_QUERIES] if self.protocol.reads else [query]
        results: dict[str, tuple[Page, str]] = {}
        for text in filter(None, map(str.strip, queries)):
            self.queries += (text,)
            results |= {page.title: (page, text) for page in self.index.search(text, self.top_k)}
        self.listed_titles |= results.keys()
        if not self.protocol.fetches:
            self.read_titles |= results.keys()
        lines = [
            f"Doc {i} (Title: {page.title:.200}) {self._excerpt(page, text)}"
            for i, (page, text) in enumerate(results.values(), 1)
        ]
        return self.protocol.show("\n".join(lines) or "No page was found.")

    def _excerpt(self, page: Page, query: str) -> str:
        return snippet(page, query) if self.protocol.fetches else page.text[: self.page_characters]

    def fetch(self, title: str) -> str:
        """Read a page of the encyclopedia.

        Args:
            title: the page's title
        """
        page = self.index.page(title) or self.index.page(title.replace("&lt;", "<"))
        if page is None:
            raise ValueError(f"there is no page {self.protocol.disarmed(title)!r:.120}")
        self.read_titles |= {page.title}
        return self.protocol.show(f"{page.title:.200}\n{page.text[: self.page_characters]}")

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        _ = self.index  # built here, since a search may take only so long
        reset_question = options.pop("question", None)
        check_no_options("SearchQuestions", options)
        if reset_question is not None:
            self.question = given_question(reset_question)
        elif self.questions:
            rows = read_questions(self.questions)[0]
            self.question = rows[int(self.np_random.integers(len(rows)))]
        else:
            world = make_world(self.world_seed, self.num_pages)
            self.question = draw_question(
                self.np_random, world, self.kinds, self.hops, self.split, self.facts
            )
        self._rewind()
        instruction = f" {self.protocol.instruction}" * self.instruction
        return (user(self._opening_text() + instruction),), {}

    def _opening_text(self) -> str:
        return self.protocol.disarmed(self.question.text)

    def _rewind(self) -> None:
        self.queries: tuple[str, ...] = ()
        self.read_titles: frozenset[str] = frozenset()
        self.listed_titles: frozenset[str] = frozenset()
        self.roles: tuple[str, ...] = ()
        self.malformed_turns = 0

    def _step_message(self, message: Message) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        answer, observation = self.protocol.answer_of(message.text), ()
        info: dict[str, Any] = {"called_tools": []}
        if message.tool_calls and (answer is None or not self.protocol.start):
            observation, info = self._run_calls(message)
            names = ("search", "fetch") if self.protocol.fetches else ("search",)
            info["called_tools"] = [c.name for c in message.tool_calls if c.name in names]
            answer = None
        is_void = answer is None and not info["called_tools"]
        is_formatted = not is_void and info.get("formatted", True) and self._has_roles(message)
        self.malformed_turns += not is_formatted
        terminated = answer is not None
        truncated = len(self._step_history) + 1 >= self.horizon and not terminated
        if terminated and self.protocol.reads:
            answer = self.question.answers[0] if self._evidence() == 1 else ""
        info.update(
            void=is_void,
            formatted=is_formatted,
            stopped=terminated,
            answer=answer,
            gold=self.question.answers[0],
            kind=self.question.kind,
            evidence=self._evidence(),
        )
        parts = dict.fromkeys(("outcome", "format", "cost"), 0.0)
        if terminated or truncated:
            parts["outcome"], info["success"] = self._judge(answer, info)
            parts["format"] = self.format_reward * (terminated and not self.malformed_turns)
            turns = len(self._step_history) + 1
            parts["cost"] = -(self.search_cost * len(self.queries) + self.turn_cost * turns)
        elif is_void and not observation:
            observation = (user(f"Invalid action. {self.protocol.instruction}"),)
        info["rewards"] = parts
        return observation, sum(parts.values()), terminated, truncated, info

    def _judge(self, answer: str | None, info: dict[str, Any]) -> tuple[float, bool]:
        """The score of what ended the episode, and whether that is a success."""
        if answer is None:
            return 0.0, False
        golds = self.question.answers
        return self.score(answer, golds), exact_match(answer, golds) == 1

    def _evidence(self) -> float:
        """The share of the pages that the question needs that were shown."""
        needed = {title for hop in self.question.hops for title in hop.titles}
        return len(needed & self.read_titles) / len(needed) if needed else 1.0

    def _has_roles(self, message: Message) -> bool:
        """Whether the turn continues the episode's roles; always where a protocol has none."""
        if not self.protocol.has_roles:
            return True
        tags = role_tags(message.text)
        calls = [{"search": "wiki_search"}.get(c.name, "crawl_page") for c in message.tool_calls]
        self.roles += (*(tags or ()), *calls, "observation")
        return tags is not None and is_role_sequence(list(self.roles))
