"""Value-guided decoding: constant values leave the policy unchanged, others shift its logits; the
cache holds both trunks.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.value_guided import ValueGuidedConfig, ValueGuidedPolicy
from agentrl_jax.policy import Policy, PolicyInputs

SMALL = DecoderConfig(layers=2, width=16, hidden=32, heads=2, kv_heads=1, head_size=8)
TOKENS = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]], np.int32)
INPUTS = PolicyInputs(
    tokens=TOKENS,
    positions=np.tile(np.arange(6, dtype=np.int32), (2, 1)),
    segment_ids=np.ones((2, 6), np.int32),
)


def value_guided(**fields) -> ValueGuidedPolicy:
    return ValueGuidedConfig(SMALL, **fields).build(11)


@pytest.mark.slow
def test_it_is_a_policy_and_constant_values_leave_it_unchanged():
    policy = value_guided(beta=4.0)
    assert isinstance(policy, Policy)
    params = policy.init(jax.random.key(0))
    plain = policy.policy.logits(
        params["policy"], policy.policy.apply(params["policy"], INPUTS).hidden
    )
    logits = policy.logits(params, policy.apply(params, INPUTS).hidden)
    assert np.asarray(jax.nn.log_softmax(logits)) == pytest.approx(
        np.asarray(jax.nn.log_softmax(plain)), abs=1e-5
    )
    trained = jax.tree.leaves_with_path(policy.trainable())
    assert {path[0].key for path, on in trained if on} == {"policy"}
    assert jax.tree.structure(policy.trainable()) == jax.tree.structure(params)


@pytest.mark.slow
def test_logits_are_the_policys_and_beta_times_the_least_target():
    policy = value_guided(beta=4.0, q=HeadConfig(scale=1.0))
    params = policy.init(jax.random.key(0))
    params["target"]["trunk"] = policy.policy.init(jax.random.key(1))
    online, target = (
        policy.policy.apply(p, INPUTS).hidden for p in (params["policy"], params["target"]["trunk"])
    )
    expected = policy.policy.logits(params["policy"], online) + 4.0 * policy.q.apply(
        params["target"]["q"], target
    ).min(0)
    guided_logits = policy.logits(params, policy.apply(params, INPUTS).hidden)
    assert np.asarray(guided_logits) == pytest.approx(np.asarray(expected), abs=1e-5)
    gradient = jax.grad(lambda p: policy.logits(p, policy.apply(p, INPUTS).hidden).sum())(params)
    assert all(
        not np.any(x) for name in ("values", "target") for x in jax.tree.leaves(gradient[name])
    )


@pytest.mark.slow
def test_decoding_over_a_cache_gives_the_same_logits():
    policy = value_guided(beta=2.0, q=HeadConfig(scale=1.0))
    params = policy.init(jax.random.key(0))
    params["target"]["trunk"] = policy.policy.init(jax.random.key(1))
    full_logits = policy.logits(params, policy.apply(params, INPUTS).hidden)
    cache, few = policy.init_cache(2, 8), policy.unstack(params)
    assert "values" not in few and len(cache.keys) == 4
    logits = []
    for t in range(6):
        single_step = PolicyInputs(
            tokens=TOKENS[:, t : t + 1],
            positions=np.full((2, 1), t, np.int32),
            segment_ids=np.ones((2, 1), np.int32),
        )
        output = policy.apply(few, single_step, cache)
        assert output.cache is not None
        cache = output.cache
        logits.append(policy.logits(few, output.hidden)[:, 0])
    assert np.asarray(jnp.stack(logits, 1)) == pytest.approx(np.asarray(full_logits), abs=1e-4)


def test_a_negative_beta_is_refused():
    with pytest.raises(UserError, match="beta"):
        value_guided(beta=-1.0)
