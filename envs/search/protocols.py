"""`SearchProtocol`: how searches, their results and answers are written."""

import re
from dataclasses import dataclass
from itertools import pairwise

from agentrl_jax.envs.answer_protocol import AnswerProtocol
from agentrl_jax.tool_formats import TagToolFormat

# arXiv 2508.13167: what may follow a role; thoughts and observations may stand anywhere
_SEARCHES = ("web_search", "wiki_search", "crawl_page")
AFM_TRANSITIONS = {
    "": ("plan", *_SEARCHES),
    "plan": (*_SEARCHES, "suggested_answer"),
    **dict.fromkeys(_SEARCHES, (*_SEARCHES, "reflection", "suggested_answer")),
    "reflection": ("plan", *_SEARCHES, "suggested_answer"),
    "suggested_answer": ("double_check",),
    "double_check": ("plan", *_SEARCHES, "answer"),
    "answer": (),
}
_AFM_TAGS = ("think", "observation", *filter(None, AFM_TRANSITIONS))
_TAG = re.compile(r"<(/?)([a-z_]+)>")


@dataclass(frozen=True)
class SearchProtocol(AnswerProtocol):
    """How an agent and the environment `SearchQuestions` write to each other.

    Args:
        thought: how a demonstration writes a thought, at `{}`.
        tags: of this protocol; in the text of a page they are shown escaped.
        fetches: a search shows snippets and the tool `fetch` a page; else a search shows pages.
        reads: the answer is that of a reader of all pages that were shown, not the agent's.
        has_roles: turns must follow Chain-of-Agents' transitions.
    """

    thought: str = "{}"
    tags: tuple[str, ...] = ("tool_call", "tool_response")
    fetches: bool = False
    reads: bool = False
    has_roles: bool = False

    def show(self, text: str) -> str:
        """What the agent reads of a result; tags in it are escaped."""
        return self.output.replace("{}", self.disarmed(text))

    def disarmed(self, text: str) -> str:
        """A text in which nothing reads as a tag of this protocol or as a token like <|end|>."""
        names = "|".join(self.tags)
        return re.sub(rf"<(?=\s*/?\s*(?:{names})\b|\|)", "&lt;", text, flags=re.IGNORECASE)

    def write_answer(self, thought: str, answer: str) -> str:
        """The text of a last turn, as a demonstration has it."""
        if not self.start:
            return answer
        text = self.thought.replace("{}", thought)
        if self.has_roles:
            text += f"<suggested_answer>{answer}</suggested_answer><double_check>4</double_check>"
        return f"{text}{self.start}{'' if self.reads else answer}{self.end}"


def role_tags(text: str) -> list[str] | None:
    """The tags of a text in Chain-of-Agents' form; None: unknown, unpaired or nested ones."""
    names: list[str] = []
    opened = ""
    for slash, name in _TAG.findall(text):
        if name not in _AFM_TAGS or (slash and name != opened) or (not slash and opened):
            return None
        opened = "" if slash else name
        if not slash:
            names.append(name)
    return None if opened else names


def is_role_sequence(tags: list[str]) -> bool:
    """Whether no two equal tags follow each other and each role may follow the last one."""
    if any(first == second for first, second in pairwise(tags)):
        return False
    roles = ["", *(tag for tag in tags if tag not in ("think", "observation"))]
    return all(after in AFM_TRANSITIONS[before] for before, after in pairwise(roles))


PROTOCOLS = {
    "plain": SearchProtocol("Call search and fetch, then write the answer alone.", fetches=True),
    # arXiv 2503.09516
    "search_r1": SearchProtocol(
        "Think in <think>...</think>. Search with <search>...</search>; results come in "
        "<information>...</information>. Answer in <answer>...</answer>.",
        "<answer>",
        "</answer>",
        TagToolFormat({"search": ("search", "query")}),
        output="<information>{}</information>",
        thought="<think>{}</think>",
        tags=("think", "search", "information", "answer"),
    ),
    # arXiv 2508.20368; the paper's tags are not published
    "planner": SearchProtocol(
        "Think in <think>...</think>. Write queries, one a line, in <search>...</search>, or end "
        "with <stop></stop>; a reader then answers from the pages shown.",
        "<stop>",
        "</stop>",
        TagToolFormat({"search": ("search", "query")}),
        output="<information>{}</information>",
        thought="<think>{}</think>",
        tags=("think", "search", "information", "stop"),
        reads=True,
    ),
    # arXiv 2508.13167
    "afm": SearchProtocol(
        "Work in the roles <think>, <plan>, <wiki_search>, <crawl_page>, <reflection>, "
        "<suggested_answer>, <double_check> and <answer>, each closed by its end tag; results come "
        "in <observation>.",
        "<answer>",
        "</answer>",
        # the last tag of a tool is the one that is written
        TagToolFormat(
            {
                "web_search": ("search", "query"),
                "wiki_search": ("search", "query"),
                "crawl_page": ("fetch", "title"),
            }
        ),
        output="<observation>{}</observation>",
        thought="<think>{}</think>",
        tags=_AFM_TAGS,
        fetches=True,
        has_roles=True,
    ),
}
# arXiv 2510.18821, the proposer; its solver's is "search_r1"
PROPOSER = SearchProtocol(
    "Think in <think>...</think>. Search with <search>...</search>; results come in "
    "<information>...</information>. End with the question in <question>...</question>; it must "
    "not hold the answer.",
    "<question>",
    "</question>",
    TagToolFormat({"search": ("search", "query")}),
    output="<information>{}</information>",
    thought="<think>{}</think>",
    tags=("think", "search", "information", "question"),
)
