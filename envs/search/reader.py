"""What a reader of search episodes is shown, and the examples that train one."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentrl_jax.documents import ChatDocument
from agentrl_jax.envs.page_index import Page
from agentrl_jax.envs.search.index import generated_index
from agentrl_jax.messages import Message, assistant, user
from agentrl_jax.trajectories import Trajectory

UNKNOWN = "unknown"  # the answer of a reader that was not shown what it needs
YES, NO = "Yes", "No"


def question_of(trajectory: Trajectory) -> str:
    """The text of an episode's opening."""
    return "".join(message.text for message in trajectory.opening).strip()


def documents_of(trajectory: Trajectory) -> tuple[str, ...]:
    """The different results that the episode's searches showed."""
    results = [m.text for turn in trajectory.turns for m in turn.observation if m.role == "tool"]
    return tuple(dict.fromkeys(results))


def page_text(page: Page, characters: int | None = None) -> str:
    """A page as a document: its title and the first characters of its text; None: all."""
    return f"(Title: {page.title}) {page.text[:characters]}"


def reading_prompt(question: str, documents: Sequence[str]) -> Sequence[Message]:
    """A question after documents, of which there may be none."""
    return [user("\n".join((*documents, f"Answer shortly: {question}")))]


def reading_conversation(
    documents: Sequence[str], turns: Iterable[tuple[str, str]]
) -> ChatDocument:
    """Questions with their answers, a turn each; the documents stand before the first."""
    messages: list[Message] = []
    for question, answer in turns:
        prompt = reading_prompt(question, () if messages else documents)
        messages += [*prompt, assistant(answer)]
    return ChatDocument(tuple(messages))


def episode_prompt(trajectory: Trajectory) -> Sequence[Message]:
    """The question after all that the episode's searches showed."""
    return reading_prompt(question_of(trajectory), documents_of(trajectory))


def question_prompt(trajectory: Trajectory) -> Sequence[Message]:
    """The question alone."""
    return reading_prompt(question_of(trajectory), ())


@dataclass(frozen=True)
class RetrievalPrompt:
    """The question after the pages of a generated encyclopedia that it finds as a query: naive
    retrieval-augmented generation.
    """

    pages: int
    world_seed: int = 0
    top_k: int = 1
    page_characters: int = 400
    fillers: int = 3

    def __call__(self, trajectory: Trajectory) -> Sequence[Message]:
        question = question_of(trajectory)
        index = generated_index(self.world_seed, self.pages, self.fillers)
        pages = index.search(question, self.top_k)
        return reading_prompt(question, [page_text(page, self.page_characters) for page in pages])


def rationality_prompt(trajectory: Trajectory) -> Sequence[Message]:
    """The question and the queries of each turn, to be judged with Yes or No."""
    queries = [
        f"{i}. {call.arguments}"
        for i, turn in enumerate(trajectory.turns, 1)
        for call in turn.action.tool_calls
    ]
    request = "Is each search of this plan needed, and none missing? Yes or No."
    return [user("\n".join((question_of(trajectory), *queries, request)))]


def is_rational(trajectory: Trajectory) -> bool:
    """Whether each search showed a further page that the question needs, and the last all."""
    shares = [float(turn.info["evidence"]) for turn in trajectory.turns if turn.action.tool_calls]
    return bool(shares) and shares[-1] == 1 and all(a < b for a, b in zip((0.0, *shares), shares))


@dataclass(frozen=True)
class ReaderExamples:
    """Examples of one episode: reading what was shown, with further pages among it, reading
    nothing, and judging the plan.

    The right answer is the question's where every page that it needs was shown, else "unknown";
    of a plan, whether `is_rational`.

    Args:
        pages, world_seed: of the generated encyclopedia.
        noise: at most so many further pages are shuffled among the results.
        page_characters: of a further page that are shown.
        fillers: sentences without facts of a page.
    """

    pages: int
    world_seed: int = 0
    noise: int = 0
    page_characters: int = 400
    fillers: int = 3

    def __call__(self, trajectory: Trajectory) -> list[tuple[Sequence[Message], str]]:
        rng = random.Random(f"{trajectory.task} {trajectory.sample}")
        index = generated_index(self.world_seed, self.pages, self.fillers)
        others = rng.sample(index.pages, rng.randint(0, self.noise))
        noise = [page_text(page, self.page_characters) for page in others]
        documents = [*documents_of(trajectory), *noise]
        rng.shuffle(documents)
        info = trajectory.turns[-1].info
        answer = str(info["gold"]) if info["evidence"] == 1 else UNKNOWN
        verdict = YES if is_rational(trajectory) else NO
        return [
            (reading_prompt(question_of(trajectory), documents), answer),
            (question_prompt(trajectory), UNKNOWN),
            (rationality_prompt(trajectory), verdict),
        ]
