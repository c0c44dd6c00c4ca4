"""A small language model, pretrained on generated text of this library's domains.

Pretraining alone: next-token prediction on texts and conversations (docs/base_model.md) by a
decoder of Qwen 3's form. The result is exported with `agentrl_jax.launch.export` and ships as
`agentrl/base-4m`.

    agentrl-train --config=configs/base_model.py --run_dir=runs/base_model
"""

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.configs.small import pick
from agentrl_jax.corpus.corpus import Corpus
from agentrl_jax.learner.learning_rate import StableThenLinear
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import END_OF_TEXT, QwenBPETokenizer
from agentrl_jax.training.config import EnvironmentConfig, EvaluationConfig, Experiment, Phase
from agentrl_jax.training.pretraining import TextDocuments

LENGTH = 256  # tokens of a window
SHAPE = DecoderConfig(
    layers=4,
    width=256,
    hidden=896,
    heads=4,
    kv_heads=2,
    head_size=64,
    qk_norm=True,
    max_positions=2048,
)


def get_config(variant: str = "full") -> Experiment:
    documents, steps = pick(variant, "base_model", full=(40_000, 6000), smoke=(2000, 60))
    # Constant, then linear: a longer run is the same up to its decay.
    rate = AdamWConfig(2e-3, 50, 0.01, weight_decay=0.1, decay=StableThenLinear(0.25))
    # A window's documents are packed anew: a little room lets a batch fit into as many bins.
    next_token = BehaviorCloningConfig(optimizer=rate, bin_length=LENGTH + 16, microbatch=4)
    text = TextDocuments(
        documents=Corpus(documents), batch=8, length=LENGTH, end_of_text=END_OF_TEXT
    )
    return Experiment(
        name="base-model",
        environment=EnvironmentConfig("", workers=0),
        tokenizer=QwenBPETokenizer(4096),
        policy=SHAPE,
        demonstrations=None,
        phases={"pretrain": Phase("pretrained", text, next_token, steps, checkpoint_every=100)},
        evaluation=EvaluationConfig(episodes=0, players=()),
    )
