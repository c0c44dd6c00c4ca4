"""The small language model, further trained to read: it copies names that it has never seen.

Next-token prediction in three phases, from `agentrl/base-4m`: lines and pairs of names that come
again; then pages of many encyclopedias with questions about them, beside some documents of the
first pretraining; then the same with pairs of names and numbers. It is exported with
`agentrl_jax.launch.export` and ships as `agentrl/read-4m` (docs/base_model.md).

    agentrl-train --config=configs/reading_model.py --run_dir=runs/reading_model
"""

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.configs.small import pick
from agentrl_jax.corpus.corpus import Corpus
from agentrl_jax.corpus.mixed_documents import MixedDocuments
from agentrl_jax.corpus.repeated_lines import RepeatedLines
from agentrl_jax.envs.search.pair_documents import PairDocuments
from agentrl_jax.envs.search.reading_documents import ReadingDocuments
from agentrl_jax.learner.learning_rate import StableThenLinear
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import BASE_MODEL
from agentrl_jax.models.tokenizers import END_OF_TEXT, FolderTokenizer
from agentrl_jax.training.config import EnvironmentConfig, EvaluationConfig, Experiment, Phase
from agentrl_jax.training.pretraining import TextDocuments

LENGTH = 768  # tokens of a document
BATCH = 24  # documents


def get_config(variant: str = "full") -> Experiment:
    copying, reading, numbers, documents = pick(
        variant, "reading_model", full=(400, 1200, 500, 30_000), smoke=(2, 2, 2, 100)
    )
    return Experiment(
        name="reading-model",
        environment=EnvironmentConfig("", workers=0),
        tokenizer=FolderTokenizer(BASE_MODEL),
        policy=PretrainedDecoder(BASE_MODEL),
        demonstrations=None,
        phases={
            "copying": _phase("copying", copying, documents // 3, 2e-3, (60, 30, 10), (1,)),
            "reading": _phase("reading", reading, documents, 1.5e-3, (30, 20, 30, 20), (1, 1, 2)),
            "numbers": _phase("numbers", numbers, documents, 1e-3, (20, 40, 30, 10), (1, 1, 2), 70),
        },
        evaluation=EvaluationConfig(episodes=0, players=()),
    )


def _phase(
    label: str,
    steps: int,
    documents: int,
    rate: float,
    percent: tuple[int, ...],
    hops: tuple[int, ...],
    numbers: int = 0,
) -> Phase:
    """A phase on documents of each kind: of repeated lines, pairs (so many in a hundred with a
    number), pages, the first pretraining.
    """
    sources = (
        RepeatedLines(FolderTokenizer(BASE_MODEL), documents),
        PairDocuments(documents, numbers=numbers),
        ReadingDocuments(documents, hops=hops),
        Corpus(documents),
    )
    mixture = MixedDocuments(sources[: len(percent)], percent, documents)
    text = TextDocuments(
        documents=mixture,
        batch=BATCH,
        length=LENGTH,
        end_of_text=END_OF_TEXT,
        whole_documents=True,
    )
    optimizer = AdamWConfig(rate, 50, 0.01, weight_decay=0.1, decay=StableThenLinear(0.3))
    next_token = BehaviorCloningConfig(optimizer=optimizer, bin_length=LENGTH, microbatch=2)
    return Phase(label, text, next_token, steps, checkpoint_every=100)
