"""Whether a language model copies: its loss on random text, and on that text when it comes again.

    python benchmarks/studies/copying.py agentrl/base-4m

A line of JSON for each length: nats per token of a line of so many random tokens where it stands
for the first time, and where it comes again. A model that copies has far less the second time.
"""

import argparse
import json

import numpy as np

from agentrl_jax.corpus.repeated_lines import ordinary_tokens
from agentrl_jax.launch.benchmarks.language_model import LanguageModel

COPIES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a folder, or the name of a model that ships")
    parser.add_argument("--lengths", default="5,10,30")
    parser.add_argument("--texts", type=int, default=32)
    flags = parser.parse_args()
    rng = np.random.default_rng(0)
    with LanguageModel(flags.model) as model:
        ordinary = ordinary_tokens(model.tokenizer)
        for length in map(int, flags.lengths.split(",")):
            nats, tokens = np.zeros(2), np.zeros(2)  # of the first line, of the others
            for _ in range(flags.texts):
                line = model.tokenizer.decode(rng.choice(ordinary, length).tolist())
                ids = model.encode("\n".join([line] * COPIES))
                end_of_line = len(model.encode(line)) - 1
                columns = np.arange(len(ids))
                is_text = (columns > 0) & (columns < len(ids) - 1)
                is_first = columns < end_of_line
                are_scored = is_text & is_first, is_text & ~is_first
                nats -= model.logp([ids, ids], are_scored)
                tokens += [is_scored.sum() for is_scored in are_scored]
            once, again = (nats / tokens).round(2).tolist()
            print(json.dumps({"tokens": length, "once": once, "again": again}))


if __name__ == "__main__":
    main()
