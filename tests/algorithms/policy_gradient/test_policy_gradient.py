"""One step of a policy-gradient method against a plain implementation of the objective and of
AdamW.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support.fixtures import (
    MeanEmbeddingPolicy,
    TurnShape,
    device_mesh,
    random_groups,
    tiny_policy,
    trajectories_with_turns,
    with_sampler_logp,
)

from agentrl_jax.algorithms.losses.policy import SurrogateLoss
from agentrl_jax.algorithms.losses.regularizers import KL, Regularizer
from agentrl_jax.algorithms.methods import dr_grpo, grpo
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradient, PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.auxiliary import AuxiliaryObjective
from agentrl_jax.algorithms.policy_gradient.credit_invariants import EpochTokens
from agentrl_jax.algorithms.policy_gradient.credited_batch import TokenTargets
from agentrl_jax.algorithms.policy_gradient.microbatches import PromptSharing
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.invariants import Invariants
from agentrl_jax.learner.learner import fetch_metrics
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex, collate, sequences_of
from agentrl_jax.policy import Policy, PolicyInputs
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, Trajectory
from agentrl_jax.workers.pool import InlinePool

POLICY = MeanEmbeddingPolicy()
PARAMS = POLICY.init(jax.random.key(0))
# A large eps keeps Adam from amplifying rounding errors where a gradient is nearly 0.
ADAM = AdamWConfig(learning_rate=0.03, eps=1e-3, weight_decay=0.1, clip_norm=0.5)

SHAPES: list[list[list[TurnShape]]] = [
    [
        [(3, 2, False, 1.0), (2, 3, False, 0.0)],
        [(3, 4, False, 0.0)],
        [(3, 1, False, 0.0), (2, 2, True, 2.0)],
    ],
    [[(2, 2, False, 1.0)], [(2, 3, False, 1.0)]],  # equal returns: no gradient
    [[(4, 3, False, -1.0)], [(4, 2, False, 0.5), (1, 1, False, 0.5), (1, 4, False, 0.0)]],
    [[(2, 3, False, 2.0)]],
]
LONG_PROMPTS: list[list[list[TurnShape]]] = [
    [
        [(9, 2, False, 1.0), (2, 3, False, 0.0)],
        [(9, 4, False, 0.0)],
        [(9, 1, False, 0.0), (2, 2, True, 2.0)],
        [(9, 3, False, 0.5)],
    ],
    [[(5, 3, False, -1.0)], [(5, 2, False, 0.5), (1, 1, False, 0.5), (1, 4, False, 0.0)]],
    [[(1, 2, False, -1.0)], [(1, 2, False, 0.5)]],
]
GROUPS = with_sampler_logp(POLICY, PARAMS, random_groups(SHAPES, seed=3), noise_scale=0.2)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    """Its invariants hold in every step of these tests."""
    with Runtime({}, {}, InlinePool()) as runtime:
        runtime.invariants.enabled = True
        yield runtime
        assert runtime.invariants.take_violations() == []


def build(config: PolicyGradientConfig, policy: Policy = POLICY) -> PolicyGradient:
    return config.build(policy, device_mesh(), steps=100)


def steps(
    algorithm: PolicyGradient,
    runtime: Runtime,
    experience: Sequence[Sequence[Group]],
    params: Any = PARAMS,
) -> tuple[Any, list]:
    """The parameters after one step on each batch of groups, and the steps' metrics."""
    state, metrics = algorithm.init(jax.random.key(0), params), []
    for groups in experience:
        state, m = algorithm.step(state, groups, runtime)
        metrics.append(m)
    return jax.device_get(state.params), metrics


def penalty(beta: float) -> dict[str, Regularizer]:
    return {"kl": KL(beta)} if beta else {}


def close(a: Any, b: Any, atol: float) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol, rtol=0), a, b)


def equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


# A reference implementation, as in the papers: loops over groups, members and tokens, one padded
# array, no packing, no weights.


def tabulate(
    groups: Sequence[Group], normalized: bool = True, longest: float | None = None
) -> dict[str, np.ndarray]:
    """One line per training sequence: tokens, which are real, action mask, the sampler's log-probs,
    advantages, and the weight of each token.
    """
    lines: dict[str, list] = {
        name: [] for name in ("tokens", "real", "mask", "old", "advantage", "weight", "temperature")
    }
    number = len(trajectories_with_turns(groups))
    for group in groups:
        returns = np.array([sum(turn.reward for turn in t.turns) for t in group.trajectories])
        centred = returns - returns.mean() if len(returns) > 1 else returns
        scaled = centred / ((returns.std(ddof=1) if len(returns) > 1 else 1.0) + 1e-6)
        for trajectory, advantage in zip(group.trajectories, scaled if normalized else centred):
            written = sum(len(call.action) for call in trajectory.calls)
            for row in sequences_of(trajectory):
                n, mask = len(row), row.action_mask.astype(float)
                filled = (
                    row.tokens,
                    np.ones(n),
                    mask,
                    row.sampler_logp,
                    mask * advantage,
                    mask / number / (longest or written),
                )
                for name, value in zip(lines, (*filled, row.temperature)):
                    lines[name].append(
                        np.pad(
                            np.asarray(value, np.float32),
                            (0, 40 - n),
                            constant_values=name == "temperature",
                        )
                    )
    return {name: np.stack(value) for name, value in lines.items()}


def objective(
    policy: Policy, params: Any, table: dict[str, np.ndarray], beta: float, ref_params: Any
) -> Array:
    """-J(theta) = -sum_j 1/J sum_t 1/n_j [min(r A, clip(r, 0.8, 1.2) A) - beta (q/p - 1 - log
    q/p)]
    """
    tokens, real = table["tokens"].astype(np.int32), table["real"].astype(np.int32)
    inputs = PolicyInputs(
        tokens=tokens,
        positions=np.broadcast_to(np.arange(40, dtype=np.int32), tokens.shape).copy(),
        segment_ids=real,
    )

    def logp(params: Any) -> Array:
        logits = (
            policy.logits(params, policy.apply(params, inputs).hidden)[:, :-1]
            / table["temperature"][:, 1:, None]
        )
        return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)[..., 0]

    now, mask = logp(params), table["mask"][:, 1:]
    ratio = jnp.exp(jnp.where(mask > 0, now - table["old"][:, 1:], 0.0))
    advantage = table["advantage"][:, 1:]
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
    log_quotient = logp(ref_params) - now
    return -jnp.sum(
        table["weight"][:, 1:] * (gain - beta * (jnp.exp(log_quotient) - 1 - log_quotient))
    )


def plain_steps(
    policy: Policy, params: Any, tables: Sequence[dict], adam: AdamWConfig, beta: float = 0.0
) -> Any:
    """One AdamW step (Loshchilov and Hutter 2019, decoupled decay) per table, after clipping the
    gradient's norm.
    """
    start = params
    m, v = (jax.tree.map(lambda x: np.zeros(x.shape), params) for _ in range(2))
    gradient = jax.jit(
        jax.grad(lambda params, table: objective(policy, params, table, beta, start))
    )
    for t, table in enumerate(tables, 1):
        g = jax.tree.map(np.float64, gradient(params, table))
        norm = np.sqrt(sum(float((x**2).sum()) for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x, norm=norm: x * min(1.0, adam.clip_norm / norm), g)
        m = jax.tree.map(lambda m, g: adam.b1 * m + (1 - adam.b1) * g, m, g)
        v = jax.tree.map(lambda v, g: adam.b2 * v + (1 - adam.b2) * g * g, v, g)

        def moved(p: Array, m: np.ndarray, v: np.ndarray, t: int = t) -> Array:
            direction = m / (1 - adam.b1**t) / (np.sqrt(v / (1 - adam.b2**t)) + adam.eps)
            p64 = np.asarray(p, np.float64)
            return jnp.asarray(
                p64 - adam.learning_rate * (direction + adam.weight_decay * p64), jnp.float32
            )

        params = jax.tree.map(moved, params, m, v)
    return params


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_three_steps_of_grpo_match_the_papers_equations(runtime: Runtime, beta: float):
    algorithm = build(grpo(optimizer=ADAM, bin_length=20, microbatch=2, regularizers=penalty(beta)))
    params, metrics = steps(algorithm, runtime, [GROUPS, GROUPS, GROUPS[:1]])
    table = tabulate(GROUPS)
    close(
        params, plain_steps(POLICY, PARAMS, [table, table, tabulate(GROUPS[:1])], ADAM, beta), 1e-6
    )
    assert fetch_metrics(metrics[1]["device"][0])["ratio_outside"] > 0.1  # the gradient was clipped
    assert fetch_metrics(metrics[0]["device"][0])["loss"] == pytest.approx(
        float(objective(POLICY, PARAMS, table, beta, PARAMS)), abs=1e-6
    )


def test_a_step_of_dr_grpo_matches_the_papers_equations(runtime: Runtime):
    algorithm = build(dr_grpo(12.0, optimizer=ADAM, bin_length=20, microbatch=2))
    params, _ = steps(algorithm, runtime, [GROUPS])
    close(
        params,
        plain_steps(POLICY, PARAMS, [tabulate(GROUPS, normalized=False, longest=12.0)], ADAM),
        1e-6,
    )


@pytest.mark.slow
def test_a_step_on_a_transformer_matches_the_papers_equations(runtime: Runtime):
    policy = tiny_policy()
    params = policy.init(jax.random.key(1))
    groups = with_sampler_logp(policy, params, GROUPS, noise_scale=0.2)
    after, _ = steps(
        build(grpo(optimizer=ADAM, bin_length=24, microbatch=4), policy), runtime, [groups], params
    )
    close(after, plain_steps(policy, params, [tabulate(groups)], ADAM), 1e-6)


@pytest.fixture(scope="module")
def algorithm() -> PolicyGradient:
    return build(grpo(optimizer=ADAM, bin_length=20, microbatch=2))


@pytest.fixture(scope="module")
def twice(algorithm: PolicyGradient, runtime: Runtime) -> Any:
    """The parameters after two steps of `algorithm` on all groups."""
    return steps(algorithm, runtime, [GROUPS, GROUPS])[0]


@pytest.mark.slow
@pytest.mark.parametrize(("bin_length", "microbatch"), [(13, 1), (31, 3), (80, 32)])
def test_microbatches_and_bins_change_nothing(
    runtime: Runtime, twice: Any, bin_length: int, microbatch: int
):
    algorithm = build(grpo(optimizer=ADAM, bin_length=bin_length, microbatch=microbatch))
    close(steps(algorithm, runtime, [GROUPS, GROUPS])[0], twice, 1e-5)


def same_prompts(groups: Sequence[Group]) -> list[Group]:
    """The groups with the first member's first prompt in all members."""
    out = []
    for group in groups:
        opening = group.trajectories[0].turns[0].calls[0].prompt

        def opened(trajectory: Trajectory, opening: np.ndarray = opening) -> Trajectory:
            turns, n = [], len(trajectory.turns[0].calls[0].prompt)
            for turn in trajectory.turns:
                (call,) = turn.calls
                rewritten = turns and not call.extends(trajectory.turns[len(turns) - 1].calls[0])
                prompt = call.prompt if rewritten else np.concatenate([opening, call.prompt[n:]])
                turns.append(
                    dataclasses.replace(turn, calls=(dataclasses.replace(call, prompt=prompt),))
                )
                if rewritten:
                    n, opening = 0, opening[:0]
            return trajectory.replace(turns=tuple(turns))

        out.append(dataclasses.replace(group, trajectories=tuple(map(opened, group.trajectories))))
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beta", "shapes"), [(0.0, ((8, 4, 2),)), (0.3, ((8, 4, 2), (3, 2, 1), (20, 3, 32)))]
)
def test_shared_prompts_change_nothing(
    runtime: Runtime, beta: float, shapes: tuple[tuple[int, int, int], ...]
):
    policy = tiny_policy()
    params = policy.init(jax.random.key(0))
    groups = with_sampler_logp(
        policy, params, same_prompts(random_groups(LONG_PROMPTS, seed=5)), noise_scale=0.1
    )

    def trained(**fields: Any) -> tuple[Any, list]:
        return steps(
            build(grpo(optimizer=ADAM, regularizers=penalty(beta), **fields), policy),
            runtime,
            [groups, groups],
            params,
        )

    want, plain = trained(bin_length=32, microbatch=2)
    for prompt, rows, microbatch in shapes:
        got, shared = trained(
            bin_length=24, prompt_sharing=PromptSharing(prompt, rows), microbatch=microbatch
        )
        close(want, got, 1e-5)
        for a, b in zip(plain, shared):
            assert fetch_metrics(a["device"][0]) == pytest.approx(
                fetch_metrics(b["device"][0]), rel=1e-5, abs=1e-5
            )


def test_a_policy_without_branches_cannot_share_prompts():
    with pytest.raises(UserError, match="MeanEmbeddingPolicy does not support rows with branches"):
        build(grpo(prompt_sharing=PromptSharing(8)))
    with pytest.raises(UserError, match="shared by at least 1 sequence"):
        build(grpo(prompt_sharing=PromptSharing(8, 0)), tiny_policy())


def test_splitting_trajectories_into_more_training_sequences_changes_nothing(
    runtime: Runtime, algorithm: PolicyGradient, twice: Any, monkeypatch: pytest.MonkeyPatch
):
    rows = len(collate(GROUPS).sequences)
    monkeypatch.setattr(Call, "extends", lambda self, other: False)
    assert len(collate(GROUPS).sequences) > rows
    close(steps(algorithm, runtime, [GROUPS, GROUPS])[0], twice, 1e-5)


def test_the_order_of_groups_and_members_changes_nothing(
    runtime: Runtime, algorithm: PolicyGradient, twice: Any
):
    shuffled = [
        dataclasses.replace(group, trajectories=group.trajectories[::-1]) for group in GROUPS[::-1]
    ]
    close(steps(algorithm, runtime, [shuffled, shuffled])[0], twice, 1e-5)


def test_a_repeated_step_is_equal_bit_for_bit(
    runtime: Runtime, algorithm: PolicyGradient, twice: Any
):
    assert equal(steps(algorithm, runtime, [GROUPS, GROUPS])[0], twice)


def test_equal_rewards_leave_the_parameters_unchanged_bit_for_bit(
    runtime: Runtime, algorithm: PolicyGradient
):
    shapes: list[list[list[TurnShape]]] = [
        [[(2, n, False, 0.1)] * 3 for n in (1, 2, 4)] for _ in range(3)
    ]
    state = algorithm.init(jax.random.key(0), PARAMS)
    state, metrics = algorithm.step(
        state, with_sampler_logp(POLICY, PARAMS, random_groups(shapes)), runtime
    )
    assert equal(jax.device_get(state.params), PARAMS) and int(state.step) == 0
    assert (
        metrics["skipped"] == 1 and metrics["groups_with_signal"] == 0 and metrics["device"] == []
    )
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(state.opt_state))


def test_a_step_without_experience_is_skipped(runtime: Runtime, algorithm: PolicyGradient):
    params, metrics = steps(algorithm, runtime, [[], [Group("lost", (), num_dropped=4)]])
    assert equal(params, PARAMS) and [m["skipped"] for m in metrics] == [1, 1]


def test_groups_of_equal_returns_still_count_in_the_mean(
    runtime: Runtime, algorithm: PolicyGradient
):
    _, (with_them, without) = steps(algorithm, runtime, [GROUPS, [GROUPS[0], GROUPS[2], GROUPS[3]]])
    assert with_them["groups_with_signal"] == 0.75 and without["groups_with_signal"] == 1.0
    table = tabulate(GROUPS)
    assert table["weight"].sum() == pytest.approx(1, abs=1e-6)
    assert table["weight"][table["advantage"] != 0].sum() == pytest.approx(
        5 / 8, abs=1e-6
    )  # one member's return equals its group's mean


@dataclasses.dataclass
class UnitAdvantage(AuxiliaryObjective):
    """Advantage 1 on every token."""

    aggregation: Callable[[TokenIndex], np.ndarray]

    def groups_for_step(self, reserved: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        return list(reserved)

    def targets(self, inputs: CreditInputs, step: int) -> TokenTargets:
        count = len(inputs.token_sequence)
        return TokenTargets(np.ones(count), np.ones(count, bool), self.aggregation)


def packed(algorithm: PolicyGradient, groups: Sequence[Group]) -> list:
    state = algorithm.init(jax.random.key(0), PARAMS)
    objective = UnitAdvantage(algorithm._config.aggregation)
    credited = algorithm._crediting.credit_auxiliary(state, objective, groups, ProcessGroup(), 0)
    return algorithm._packer.policy_microbatches(
        credited, np.arange(len(groups)), ProcessGroup(), Invariants(), EpochTokens([])
    )


def test_observation_tokens_have_exactly_no_gradient(algorithm: PolicyGradient):
    batches = packed(algorithm, GROUPS)

    def after(change: bool) -> Any:
        changed = jax.tree.map(np.copy, batches)
        for microbatch in changed if change else []:
            observed = ~microbatch.batch.action_mask
            assert observed.any()
            for array in (
                microbatch.batch.weight,
                microbatch.advantage,
                microbatch.nll_weight,
                microbatch.proximal_logp,
                microbatch.ref_logp,
                microbatch.batch.sampler_logp,
            ):
                array[observed] = 5.0
        state, metrics = algorithm._learner.update(
            algorithm.init(jax.random.key(0), PARAMS), changed
        )
        return jax.device_get(state.params), fetch_metrics(metrics)

    assert equal(after(False), after(True))


def test_action_tokens_have_a_gradient(algorithm: PolicyGradient):
    batches = packed(algorithm, GROUPS)
    changed = jax.tree.map(np.copy, batches)
    b, t = np.argwhere(changed[0].batch.action_mask)[0]
    changed[0].advantage[b, t] += 1.0
    before, after = (
        algorithm._learner.update(algorithm.init(jax.random.key(0), PARAMS), x)[0].params
        for x in (batches, changed)
    )
    assert not equal(before, after)


def test_without_a_kl_there_is_no_reference(runtime: Runtime, twice: Any):
    algorithm = build(grpo(optimizer=ADAM, bin_length=20, microbatch=2))
    assert algorithm.init(jax.random.key(0), PARAMS).extra.reference is None
    assert equal(steps(algorithm, runtime, [GROUPS, GROUPS])[0], twice)


def test_the_reference_stays_at_the_initial_parameters(runtime: Runtime):
    algorithm = build(grpo(optimizer=ADAM, bin_length=20, microbatch=2, regularizers=penalty(1.0)))
    state = algorithm.init(jax.random.key(0), PARAMS)
    drift = []
    for _ in range(3):
        state, metrics = algorithm.step(state, GROUPS, runtime)
        drift.append(fetch_metrics(metrics["device"][0])["ref_kl"])
    assert equal(jax.device_get(state.extra.reference), PARAMS) and not equal(
        jax.device_get(state.params), PARAMS
    )
    assert drift[0] == pytest.approx(0, abs=1e-7) and drift[2] > drift[1] > 1e-3


class RatioDistance(SurrogateLoss):
    """|ratio - 1|"""

    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        return jnp.abs(jnp.expm1(logp - proximal_logp))


def test_rescoring_makes_the_first_ratio_one(runtime: Runtime):
    config = dataclasses.replace(
        grpo(optimizer=ADAM, bin_length=20, microbatch=2, rescore=True), surrogate=RatioDistance()
    )
    _, (metrics,) = steps(build(config), runtime, [GROUPS])
    first = fetch_metrics(metrics["device"][0])
    # Two different programs, so they differ by a few units in the last place of log-probs near
    # -2.7, each 2.4e-7.
    assert first["policy_loss"] < 1e-6 and first["ratio_outside"] == 0.0
    assert first["off_policy/logp_gap"] > 0.05  # the recorded log-probs differ from the learner's


def test_every_minibatchs_ratio_is_to_the_policy_before_the_first(runtime: Runtime):
    exact = with_sampler_logp(POLICY, PARAMS, GROUPS)
    fast = dataclasses.replace(ADAM, learning_rate=0.1)
    recorded, rescored = (
        steps(
            build(
                grpo(optimizer=fast, bin_length=20, microbatch=2, minibatches=2, rescore=rescore)
            ),
            runtime,
            [exact],
        )
        for rescore in (False, True)
    )
    close(recorded[0], rescored[0], 1e-5)
    assert fetch_metrics(rescored[1][0]["device"][1])["ratio_outside"] > 0.1


def test_two_minibatches_are_two_steps_on_half_of_the_groups(
    runtime: Runtime, algorithm: PolicyGradient
):
    halves, (metrics,) = steps(
        build(grpo(optimizer=ADAM, bin_length=20, microbatch=2, minibatches=2)), runtime, [GROUPS]
    )
    assert len(metrics["device"]) == 2
    close(halves, steps(algorithm, runtime, [GROUPS[:2], GROUPS[2:]])[0], 1e-6)


def test_the_learner_agrees_with_the_sampler_at_the_first_step(
    runtime: Runtime, algorithm: PolicyGradient
):
    _, (metrics,) = steps(algorithm, runtime, [with_sampler_logp(POLICY, PARAMS, GROUPS)])
    first = fetch_metrics(metrics["device"][0])
    assert (
        first["off_policy/logp_gap"] < 1e-6
        and first["off_policy/kl"] < 1e-10
        and first["ratio_outside"] == 0.0
    )
    assert metrics["tokens/identity"] == 1.0 and metrics["tokens"] == sum(
        len(call.action) for t in trajectories_with_turns(GROUPS) for call in t.calls
    )


def rewarded(reward: float) -> list[Group]:
    (trajectory, *members), group = GROUPS[0].trajectories, GROUPS[0]
    turns = (dataclasses.replace(trajectory.turns[0], reward=reward), *trajectory.turns[1:])
    return [
        dataclasses.replace(group, trajectories=(trajectory.replace(turns=turns), *members)),
        *GROUPS[1:],
    ]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_not_finite_is_an_error_and_never_a_weight(
    runtime: Runtime, algorithm: PolicyGradient, reward: float
):
    state = algorithm.init(jax.random.key(0), PARAMS)
    with pytest.raises(ValueError, match="reward is not finite"):
        algorithm.step(state, rewarded(reward), runtime)
    assert equal(jax.device_get(state.params), PARAMS)


def test_an_advantage_that_is_not_finite_is_an_error(runtime: Runtime):
    for wrong in (
        lambda indices: np.full(len(indices.token_sequence), np.nan),
        lambda indices: np.ones(3),
    ):
        config = dataclasses.replace(
            grpo(optimizer=ADAM, bin_length=20, microbatch=2), advantage=wrong
        )
        with pytest.raises(UserError, match="one finite number per policy-written token"):
            steps(build(config), runtime, [GROUPS])


def test_huge_rewards_stay_finite(runtime: Runtime, algorithm: PolicyGradient):
    params, _ = steps(algorithm, runtime, [rewarded(1e30), rewarded(-1e30)])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))


def test_greedy_samples_cannot_be_trained_on(runtime: Runtime, algorithm: PolicyGradient):
    first, *members = GROUPS[2].trajectories
    (call,) = first.turns[0].calls
    greedy = dataclasses.replace(call, sampling=dataclasses.replace(call.sampling, temperature=0.0))
    turns = (dataclasses.replace(first.turns[0], calls=(greedy,)), *first.turns[1:])
    with pytest.raises(UserError, match="temperature above 0"):
        steps(
            algorithm,
            runtime,
            [[dataclasses.replace(GROUPS[2], trajectories=(first.replace(turns=turns), *members))]],
        )


def test_an_invalid_config_is_refused():
    for settings in ({"minibatches": 0}, {"microbatch": 0}, {"epochs": 0}):
        with pytest.raises(UserError, match="epochs, minibatches and microbatch >= 1"):
            build(grpo(**settings))
