"""Scores of given texts: the log-probs of a plain forward pass, few programs, no other request's
influence.
"""

from concurrent.futures import Future, wait

import jax
import numpy as np
import pytest
from support.fixtures import VOCAB_SIZE, MeanEmbeddingPolicy, record_compilations, unpacked_logp

from agentrl_jax.algorithms.policy_gradient.scoring import scoring_sequence
from agentrl_jax.errors import UserError
from agentrl_jax.inference.batch_scorer import BatchScorer, continuation_logp
from agentrl_jax.inference.engine_config import EngineConfig

POLICY = MeanEmbeddingPolicy()
PARAMS = POLICY.init(jax.random.key(0))
ENGINE = EngineConfig(positions=32)


def make_scorer(rows: int = 4, seed: int = 0) -> BatchScorer:
    return BatchScorer(
        continuation_logp(POLICY),
        POLICY.axes(),
        lambda: POLICY.init(jax.random.key(seed)),
        ENGINE,
        rows,
    )


def random_text(rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = rng.integers(0, VOCAB_SIZE, length, np.int32)
    return tokens, np.arange(length) >= rng.integers(1, length)


def results(futures: list["Future[float]"]) -> list[float]:
    return [future.result(60) for future in futures]


def test_a_score_is_the_sum_of_the_log_probs_of_the_scored_tokens():
    rng, scorer = np.random.default_rng(0), make_scorer()
    texts = [random_text(rng, length) for length in (2, 7, 8, 9, 16, 17, 31, 32)]
    scores = results([scorer.submit(*text) for text in texts])
    expected = [
        unpacked_logp(POLICY, PARAMS, scoring_sequence(tokens, scored))[scored].sum()
        for tokens, scored in texts
    ]
    assert scores == pytest.approx(expected, abs=1e-4) and len({round(x, 3) for x in scores}) == 8
    scorer.close()


def test_nothing_compiles_after_the_first_score_and_requests_share_passes():
    rng, scorer = np.random.default_rng(1), make_scorer()
    assert scorer.num_passes == 0  # weights are loaded at the first request
    scorer.submit(*random_text(rng, 5)).result(60)
    before = scorer.num_passes
    with record_compilations() as compiled:
        texts = [random_text(rng, int(rng.integers(2, 33))) for _ in range(200)]
        results([scorer.submit(*text) for text in texts])
    assert compiled == []
    assert 200 / 4 <= scorer.num_passes - before < 150  # 4 rows a pass, lengths apart
    scorer.close()


def test_other_requests_do_not_change_a_score():
    rng, scorer = np.random.default_rng(2), make_scorer()
    text = random_text(rng, 12)
    alone = scorer.submit(*text).result(60)
    crowd = [random_text(rng, int(rng.integers(9, 17))) for _ in range(20)]
    futures = [scorer.submit(*x) for x in (*crowd[:7], text, *crowd[7:])]
    assert results(futures)[7] == alone
    scorer.close()


def test_new_weights_give_new_scores():
    rng, scorer = np.random.default_rng(3), make_scorer()
    text = random_text(rng, 12)
    before = scorer.submit(*text).result(60)
    with record_compilations() as compiled:
        scorer.set_weights(POLICY.init(jax.random.key(1)))
    other = make_scorer(seed=1)
    assert scorer.submit(*text).result(60) == other.submit(*text).result(60) != before
    assert len(compiled) < 10  # eager copies alone: none of the scorer's programs
    scorer.close()
    other.close()


def test_texts_that_are_too_long_are_refused_and_errors_reach_the_caller():
    scorer = make_scorer()
    for wrong in (np.zeros(0, bool), np.ones(2, bool)):
        with pytest.raises(ValueError, match="begins with a token that is not scored"):
            scorer.submit(np.zeros(len(wrong), np.int32), wrong)
    with pytest.raises(UserError, match="has 33 tokens, the model reads 32: raise"):
        scorer.submit(np.zeros(33, np.int32), np.zeros(33, bool))

    def broken(params: object, batch: object) -> jax.Array:
        raise ZeroDivisionError("broken")

    faulty = make_scorer()
    faulty.submit(np.zeros(3, np.int32), np.zeros(3, bool)).result(60)
    faulty._program = broken  # type: ignore[assignment]
    future = faulty.submit(np.zeros(3, np.int32), np.zeros(3, bool))
    wait([future], 60)
    assert isinstance(future.exception(), ZeroDivisionError)
    scorer.close()
    faulty.close()
