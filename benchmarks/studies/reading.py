"""How often a language model's answers about pages that it is shown are right.

    python benchmarks/studies/reading.py agentrl/base-4m --questions=40

Pages and questions are those of `ReadingDocuments`, with up to three further pages; answers are
greedy. A line of JSON: the share of right answers by the number of hops, and where the pages do not
tell.
"""

import argparse
import json
from typing import Any

from agentrl_jax.corpus.exercise import Exercise
from agentrl_jax.documents import ChatDocument
from agentrl_jax.envs.search.reading_documents import ReadingDocuments
from agentrl_jax.launch.benchmarks.language_model import LanguageModel

WORLD = 0  # the models that ship have not read this encyclopedia
KINDS: dict[str, dict[str, Any]] = {
    "one_hop": {"hops": (1,), "unknown": 0},
    "two_hops": {"hops": (2,), "unknown": 0},
    "unknown": {"hops": (1, 2), "unknown": 100},
}


def exercises(kind: str, count: int) -> list[Exercise]:
    """Questions with their pages, of one kind."""
    options = {"topics": 1, "noise": 3, "questions": 1, **KINDS[kind]}
    documents = ReadingDocuments(documents=count, first_world=WORLD, **options)
    return [Exercise(ChatDocument(x.messages[:-1]), x.messages[-1]) for x in documents()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a folder, or the name of a model that ships")
    parser.add_argument("--questions", type=int, default=50)
    flags = parser.parse_args()
    with LanguageModel(flags.model) as model:
        shares = {}
        for kind in KINDS:
            result = model.evaluate(exercises(kind, flags.questions))
            shares[kind] = round(result.right / result.count, 3)
    print(json.dumps(shares))


if __name__ == "__main__":
    main()
