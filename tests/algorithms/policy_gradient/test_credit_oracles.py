"""From groups to packed tokens, step by step, against plain loops: targets, weights, metrics,
scores, microbatches and the loss.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.declared_defaults import declared_defaults
from support.fixtures import (
    MeanEmbeddingPolicy,
    device_mesh,
    make_call,
    make_credit_inputs,
    make_trajectory,
    make_turn,
)
from support.ragged_groups import ragged_batches, ragged_groups, token_table

from agentrl_jax.algorithms.advantages.group import AdvantageAndTarget
from agentrl_jax.algorithms.advantages.grouping import sequence_of_token, turn_of_token
from agentrl_jax.algorithms.advantages.token_weights import token_mean, trajectory_mean
from agentrl_jax.algorithms.experience.schedules import Linear
from agentrl_jax.algorithms.experience.self_imitation import PositiveReplay
from agentrl_jax.algorithms.losses.policy import SurrogateLoss
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import EntropyBonus, TokenCoefficient
from agentrl_jax.algorithms.methods import datamind
from agentrl_jax.algorithms.policy_gradient.auxiliary import (
    Imitation,
    SelfImitation,
    is_demonstration,
    replace_group_logp,
)
from agentrl_jax.algorithms.policy_gradient.config import PolicyGradientSlots
from agentrl_jax.algorithms.policy_gradient.credit_invariants import EpochTokens, advantage_digests
from agentrl_jax.algorithms.policy_gradient.credited_batch import (
    CreditedBatch,
    CreditedRecord,
    TokenColumns,
    TokenTargets,
    batch_metrics,
    credit_metrics,
)
from agentrl_jax.algorithms.policy_gradient.crediting import token_targets
from agentrl_jax.algorithms.policy_gradient.critic import (
    CriticBatch,
    CriticConfig,
    explained_variance,
    first_token_mean,
)
from agentrl_jax.algorithms.policy_gradient.device_loss import PolicyGradientBatch, PolicyLoss
from agentrl_jax.algorithms.policy_gradient.microbatches import MicrobatchPacker, PromptSharing
from agentrl_jax.algorithms.policy_gradient.scoring import (
    ScoringPass,
    packed_sequence_ids,
    scoring_sequence,
)
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.invariants import Invariants
from agentrl_jax.learner.data_shards import make_data_shard
from agentrl_jax.learner.global_batch import gather_groups
from agentrl_jax.learner.packing import Batch, pack
from agentrl_jax.learner.recorded_tokens import RecordedTokens
from agentrl_jax.learner.sequences import CreditInputs, collate
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.trajectories import Group

RAGGED = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 99)
LENGTH, ROWS = 48, 2  # of a bin, and of a microbatch


def slots(**fields: Any) -> PolicyGradientSlots:
    defaults = {
        "advantage": lambda inputs: np.arange(len(inputs.token_sequence)) - 1.0,
        "aggregation": token_mean,
        "surrogate": PPO(),
    }
    return PolicyGradientSlots(**(defaults | fields))


@given(shapes=ragged_batches, normalize=st.booleans(), seed=seeds)
@RAGGED
def test_targets_are_advantages_transformed_masked_and_weighted(
    shapes: list, normalize: bool, seed: int
):
    inputs = make_credit_inputs(ragged_groups(shapes, seed))
    n, rng = len(inputs.token_sequence), np.random.default_rng(seed)
    mask, accepted = rng.random(n) < 0.6, rng.random(n) < 0.8
    importance = rng.choice([0.0, 0.5, 2.0], n)
    inputs = dataclasses.replace(
        inputs, token_importance_weight=importance, token_accepted=accepted
    )
    regularizer = EntropyBonus(Linear(0.5, 0.0, 4))
    config = slots(
        mask=lambda _: mask,
        transforms=(lambda _, a: 2.0 * a, lambda _, a: a + 1.0),
        mismatch_normalize=normalize,
        regularizers={"entropy": regularizer},
        aggregation=trajectory_mean,
    )
    targets = token_targets(config, inputs, step=1)
    trained = [bool(m and a) for m, a in zip(mask, accepted)]
    weights = [float(w) for w, t in zip(importance, trained) if t]
    mean = statistics.fmean(weights) if normalize and weights else 1.0
    expected = [(2.0 * (i - 1.0) + 1.0) * importance[i] / (mean or 1.0) for i in range(n)]
    assert targets.advantage == pytest.approx(expected, abs=1e-9)
    assert targets.train_mask.tolist() == trained
    assert targets.value_target is None and targets.nll_weight is None
    data = (targets.regularizer_data or {})["entropy"]
    assert data.coefficient.tolist() == [0.375] * n  # at step 1 of 4, from .5 to 0
    owners = [int(j) for j, t in zip(inputs.token_trajectory, trained) if t]
    loss_weight = [
        1.0 / (len(set(owners)) * owners.count(int(j))) if t else 0.0
        for j, t in zip(inputs.token_trajectory, trained)
    ]
    assert targets.loss_weights(inputs, slice(0, n)) == pytest.approx(loss_weight, abs=1e-12)
    scaled = dataclasses.replace(targets, weight_scale=0.25)
    assert scaled.loss_weights(inputs, slice(0, n)) == pytest.approx(
        [0.25 * w for w in loss_weight], abs=1e-12
    )
    bare = token_targets(slots(), dataclasses.replace(inputs, token_accepted=None), step=0)
    assert bare.train_mask.all()
    unweighted = dataclasses.replace(inputs, token_importance_weight=None)
    assert token_targets(slots(), unweighted, 0).advantage.tolist() == list(np.arange(n) - 1.0)


WITH_CRITIC = {"critic": CriticConfig(HeadConfig(layers=0))}


@pytest.mark.parametrize(
    ("advantage", "fields", "message"),
    [
        (np.ones(2), {}, "one finite number"),
        (np.ones((3, 1)), {}, "one finite number"),
        (np.array([0.0, np.nan, 1.0]), {}, "one finite number"),
        (np.array([0.0, -np.inf, 1.0]), {}, "one finite number"),
        (AdvantageAndTarget(np.ones(3), np.ones(2)), WITH_CRITIC, "one finite number"),
        (AdvantageAndTarget(np.ones(3), np.full(3, np.nan)), WITH_CRITIC, "one finite number"),
        (AdvantageAndTarget(np.full(3, np.inf), np.ones(3)), WITH_CRITIC, "one finite number"),
        (AdvantageAndTarget(np.ones(3), np.ones(3)), {}, "needs a critic"),
        (np.ones(3), WITH_CRITIC, "needs a critic"),
    ],
)
def test_advantages_and_value_targets_that_do_not_fit_are_refused(
    advantage: Any, fields: dict[str, Any], message: str
):
    inputs = make_credit_inputs([group_of([1, 2, 3])])
    with pytest.raises(UserError, match=message):
        token_targets(slots(advantage=lambda _: advantage, **fields), inputs, 0)


def group_of(*actions: Sequence[int], **fields: Any) -> Group:
    """A group with a trajectory of one turn for each action."""
    turns = [make_turn([dataclasses.replace(make_call([1], a), **fields)]) for a in actions]
    return Group("a", tuple(make_trajectory(turn) for turn in turns))


def test_an_advantage_with_a_target_trains_its_critic():
    both = AdvantageAndTarget(np.array([1.0, -2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
    inputs = make_credit_inputs([group_of([1, 2, 3])])
    transforms = (lambda _, a: -a,)
    config = slots(advantage=lambda _: both, transforms=transforms, **WITH_CRITIC)
    targets = token_targets(config, inputs, 0)
    assert targets.advantage.tolist() == [-1.0, 2.0, -3.0]
    assert targets.value_target is not None and targets.value_target.tolist() == [4.0, 5.0, 6.0]


@given(shapes=ragged_batches, more_turns=st.integers(0, 9), seed=seeds)
@RAGGED
def test_metrics_of_credit(shapes: list, more_turns: int, seed: int):
    one_token = [(1, 0, 1, False)]
    long = [([(one_token, 0.0, False)] * more_turns, False)]
    inputs = make_credit_inputs(ragged_groups([*shapes, long], seed))
    n, rng = len(inputs.token_sequence), np.random.default_rng(seed)
    advantage, mask = rng.choice([-1.0, 0.0, 0.5, 3.0], n), rng.random(n) < 0.7
    metrics = credit_metrics(inputs, TokenTargets(advantage, mask, token_mean))
    if not n:
        assert metrics == {}
        return
    trained = [float(a) for a, m in zip(advantage, mask) if m]
    expected = {
        "advantage/mean": statistics.fmean(trained) if trained else 0.0,
        "advantage/std": statistics.pstdev(trained) if trained else 0.0,
        "advantage/positive": len([a for a in trained if a > 0]) / max(len(trained), 1),
        "tokens/masked": 1.0 - len(trained) / n,
    }
    first_turns = np.searchsorted(inputs.turn_trajectory, np.arange(len(inputs.trajectories)))
    for index in range(8):
        values = [
            float(a)
            for a, m, r in zip(advantage, mask, inputs.token_turn)
            if m and r - first_turns[inputs.turn_trajectory[r]] == index
        ]
        if values:
            expected[f"advantage/turn_{index}"] = statistics.fmean(values)
    assert metrics == pytest.approx(expected, abs=1e-9)


def credited(
    groups: Sequence[Group], seed: int, targets: TokenTargets | None = None
) -> CreditedBatch:
    """Random columns of one process's groups."""
    collated, inputs = collate(groups), make_credit_inputs(groups)
    n, rng = len(inputs.token_sequence), np.random.default_rng(seed)
    columns = TokenColumns(
        advantage=rng.choice([-1.0, 0.0, 0.0, 2.0], n),
        nll_weight=rng.choice([0.0, 0.0, 0.5], n),
        sequence_key=inputs.token_turn,
        proximal_logp=-rng.random(n),
        ref_logp=-rng.random(n),
        value=rng.normal(size=n),
        value_target=rng.normal(size=n),
        regularizer_data={"entropy": rng.choice([0.0, 0.0, 0.1], n)},
    )
    targets = targets or TokenTargets(columns.advantage, rng.random(n) < 0.7, token_mean, 2.0)
    recorded = RecordedTokens.of(groups)
    digests = advantage_digests(recorded, columns.advantage)
    global_groups = gather_groups(ProcessGroup(), inputs, len(groups))
    return CreditedBatch(
        collated.sequences,
        inputs,
        global_groups,
        targets,
        columns,
        CreditedRecord(recorded, digests),
    )


@given(shapes=ragged_batches, step=st.integers(2, 5), seed=seeds)
@RAGGED
def test_metrics_of_the_rollouts(shapes: list, step: int, seed: int):
    groups = ragged_groups(shapes, seed)
    table, rng = token_table(groups), np.random.default_rng(seed)
    n = len(table.places)
    targets = TokenTargets(
        rng.choice([-1.0, 0.0, 0.0, 2.0], n),
        rng.random(n) < 0.6,
        token_mean,
        value_target=rng.normal(size=n),
    )
    batch = credited(groups, seed, targets)
    versions = [int(rng.integers(-1, 3)) for _ in range(n)]
    for version, s, p in zip(
        versions, batch.local_inputs.token_sequence, batch.local_inputs.token_position
    ):
        batch.sequences[s].version[p] = version
    metrics = batch_metrics(batch, ProcessGroup(), step)
    group_of_token = [
        table.group_of[j] for j in range(len(table.turns_of)) for _ in table.trajectory_tokens(j)
    ]
    with_signal = {
        g for g, a, m in zip(group_of_token, targets.advantage, targets.train_mask) if m and a != 0
    }
    ages = [step - version for version in versions if version >= 0]
    assert metrics["groups_with_signal"] == pytest.approx(len(with_signal) / max(len(groups), 1))
    assert metrics["staleness"] == pytest.approx(statistics.fmean(ages) if ages else 0.0)
    assert metrics["tokens"] == n and metrics["tokens/identity"] == 1.0
    assert "critic/explained_variance" not in metrics  # nobody computed values
    value = rng.normal(size=n)
    scored: Any = dataclasses.replace(batch.local_inputs, token_value=value)
    with_values = dataclasses.replace(
        batch, global_groups=dataclasses.replace(batch.global_groups, token_index=scored)
    )
    again = batch_metrics(with_values, ProcessGroup(), step)
    assert targets.value_target is not None
    explained = explained_variance(value, targets.value_target)
    assert again["critic/explained_variance"] == explained
    if n > 1:
        unexplained = statistics.pvariance((targets.value_target - value).tolist())
        spread = statistics.pvariance(targets.value_target.tolist())
        assert explained == pytest.approx(1.0 - unexplained / spread, abs=1e-9)


def test_explained_variance_at_its_limits():
    target = np.array([0.0, 0.0, 3.0])
    assert explained_variance(target + 7.0, target) == 1.0
    assert explained_variance(-target, target) == pytest.approx(1.0 - 4.0)
    assert explained_variance(target, np.full(3, 1e-3)) == 0.0


@given(shapes=ragged_batches)
@RAGGED
def test_the_first_tokens_of_turns_share_the_weight(shapes: list):
    groups = ragged_groups(shapes)
    inputs, table = make_credit_inputs(groups), token_table(groups)
    firsts = {tokens[0] for tokens in table.tokens_of if tokens}
    expected = [1.0 / len(firsts) if n in firsts else 0.0 for n in range(len(table.places))]
    assert first_token_mean(inputs) == pytest.approx(expected, abs=1e-12)


@given(shapes=ragged_batches, first=st.integers(0, 2), count=st.integers(1, 2), seed=seeds)
@RAGGED
def test_tokens_of_some_groups_among_those_of_all_processes(
    shapes: list, first: int, count: int, seed: int
):
    groups = ragged_groups(shapes, seed)
    selected = np.arange(first, min(first + count, len(groups)))
    batch, table = credited(groups, seed), token_table(groups)
    group_of_token = [
        table.group_of[j] for j in range(len(table.turns_of)) for _ in table.trajectory_tokens(j)
    ]
    is_local = np.random.default_rng(seed).random(len(group_of_token)) < 0.5
    batch = dataclasses.replace(
        batch, global_groups=dataclasses.replace(batch.global_groups, local_token_mask=is_local)
    )
    inputs, tokens, local = batch.select_groups(selected)
    is_selected = [g in selected for g in group_of_token]
    assert list(range(len(is_selected)))[tokens] == np.flatnonzero(is_selected).tolist()
    local_selected = [s for s, local_token in zip(is_selected, is_local) if local_token]
    assert list(range(len(local_selected)))[local] == np.flatnonzero(local_selected).tolist()
    assert len(inputs.token_sequence) == sum(is_selected)


@given(shapes=ragged_batches, seed=seeds)
@RAGGED
def test_tokens_of_one_sequence_and_key_share_an_id_in_their_row(shapes: list, seed: int):
    groups = ragged_groups(shapes, seed)
    collated, inputs = collate(groups), make_credit_inputs(groups)
    layout = pack(collated.sequences, LENGTH, 1)
    for key in (sequence_of_token(inputs), turn_of_token(inputs), inputs.token_position % 2 + 3):
        ids = packed_sequence_ids(layout, inputs.token_sequence, inputs.token_position, key)
        columns: dict[tuple[int, int], int] = {}
        for s, p, k in zip(inputs.token_sequence, inputs.token_position, key):
            columns.setdefault((int(s), int(k)), int(layout.bin_offset[s] + p))
        assert ids.tolist() == [columns[int(s), int(k)] for s, k in zip(inputs.token_sequence, key)]


class TokenReader:
    """In place of a learner: its scores of a batch are the tokens and their positions."""

    data_shard = SimpleNamespace(local_rows=np.asarray)

    def score(self, params: float, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        assert len(batch.tokens) == ROWS and not np.asarray(batch.weight).any()
        return params * np.asarray(batch.tokens), np.asarray(batch.positions)


def packer(**fields: Any) -> MicrobatchPacker:
    sharing = PromptSharing(**fields)
    return MicrobatchPacker(make_data_shard(device_mesh()), LENGTH, sharing, ROWS)


@given(shapes=ragged_batches, shared=st.sampled_from([0, 3]), seed=seeds)
@RAGGED
def test_scores_and_importance_weights_come_back_to_their_tokens(
    shapes: list, shared: int, seed: int
):
    groups = [g for g in ragged_groups(shapes, seed) if len(make_credit_inputs([g]).token_sequence)]
    collated, inputs = collate(groups), make_credit_inputs(groups)
    scoring = packer(prompt_tokens=shared, sequences=2).scoring_pass(
        collated.sequences, collated.token_index, ProcessGroup()
    )
    reader: Any = TokenReader()
    scores, positions = scoring.token_scores(reader, 0.5)  # pyright: ignore
    assert scores.tolist() == (0.5 * collated.token_values("tokens")).tolist()
    assert positions.tolist() == inputs.token_position.tolist()

    def correct(logp: Any, sampler_logp: Any, mask: Any, ids: Any) -> tuple[Any, Any]:
        assert logp.shape == sampler_logp.shape == mask.shape == ids.shape and len(logp) == ROWS
        assert ids.dtype == np.int32 and (logp[~mask] == 0).all()
        return logp - sampler_logp, ids % 2 == 0

    n = len(inputs.token_sequence)
    logp = np.random.default_rng(seed).normal(size=n).astype(np.float32)
    key = turn_of_token(inputs)
    weight, keep = scoring.importance_weights(correct, logp, key)  # pyright: ignore
    sampler_logp = collated.token_values("sampler_logp")
    assert weight == pytest.approx(logp - sampler_logp, abs=1e-6)
    assert len(keep) == n
    for s, k in set(zip(inputs.token_sequence.tolist(), key.tolist())):
        same = keep[(inputs.token_sequence == s) & (key == k)]
        assert len(set(same.tolist())) == 1


def test_without_sequences_nothing_is_scored():
    scoring = ScoringPass(None, collate([]).token_index, 1)
    reader: Any = TokenReader()
    assert [x.shape for x in scoring.token_scores(reader, None)] == [(0,), (0,)]
    weight, keep = scoring.importance_weights(reader, np.zeros(0), np.zeros(0, np.int64))
    assert weight.shape == keep.shape == (0,) and keep.dtype == bool


def test_a_sequence_to_score_is_one_turn_that_nobody_sampled():
    is_action = np.array([False, True, True, False])
    x = scoring_sequence(np.arange(4, dtype=np.int32), is_action)
    assert x.turn.tolist() == [-1, 0, 0, -1] and x.version.tolist() == [-1] * 4
    assert x.temperature.tolist() == [1.0] * 4 and x.sampler_logp.tolist() == [0.0] * 4
    assert x.action_mask is is_action and x.tokens.tolist() == [0, 1, 2, 3]


def packed_tokens(microbatches: Sequence[Any]) -> dict[str, list[float]]:
    """Each column of the packed tokens that were sampled, over all rows."""
    columns: dict[str, list[float]] = {}
    for microbatch in microbatches:
        assert microbatch.batch.tokens.shape[0] == ROWS
        mask = np.asarray(microbatch.batch.action_mask)
        fields = {**vars(microbatch.batch), **vars(microbatch)}
        for name, values in fields.items():
            if isinstance(values, np.ndarray):
                columns.setdefault(name, []).extend(values[mask].tolist())
                if name in ("weight", "advantage", "target"):
                    assert not values[~mask].any()
    return columns


@given(shapes=ragged_batches, shared=st.sampled_from([0, 3]), seed=seeds)
@RAGGED
def test_microbatches_hold_every_token_that_learns_with_its_own_numbers(
    shapes: list, shared: int, seed: int
):
    groups = [g for g in ragged_groups(shapes, seed) if len(make_credit_inputs([g]).token_sequence)]
    batch = credited(groups, seed)
    inputs, columns = batch.local_inputs, batch.token_columns
    selected = np.arange(len(groups))[: len(groups) // 2 + 1]
    invariants = Invariants()
    invariants.enabled = True
    epoch = EpochTokens([batch])
    microbatches = packer(prompt_tokens=shared, sequences=2).policy_microbatches(
        batch, selected, ProcessGroup(), invariants, epoch
    )
    assert not invariants.take_violations()
    group = inputs.trajectory_group[inputs.token_trajectory]
    mask = batch.targets.train_mask
    num_trained = sum(bool(m) for m, g in zip(mask, group) if g in selected)
    weight = [2.0 / num_trained if m and g in selected else 0.0 for m, g in zip(mask, group)]
    losses = np.abs(columns.advantage) + columns.nll_weight + columns.regularizer_data["entropy"]
    learning = {int(s) for s, w, x in zip(inputs.token_sequence, weight, losses) if w and x}
    expected = [
        (
            int(batch.sequences[s].tokens[p]), int(p), weight[n], columns.advantage[n],
            columns.nll_weight[n], columns.proximal_logp[n], columns.ref_logp[n],
        )
        for n, (s, p) in enumerate(zip(inputs.token_sequence, inputs.token_position))
        if int(s) in learning
    ]  # fmt: skip
    packed = packed_tokens(microbatches)
    names = (
        "tokens", "positions", "weight", "advantage", "nll_weight", "proximal_logp", "ref_logp",
    )  # fmt: skip
    actual = list(zip(*(packed.get(name, []) for name in names)))
    assert len(actual) == len(expected)
    for got, want in zip(sorted(actual), sorted(expected)):
        assert got == pytest.approx(want, abs=1e-6)
    if len(groups) == len(selected):
        assert epoch.check().holds
    if not learning:
        assert microbatches == []


@given(shapes=ragged_batches, seed=seeds)
@RAGGED
def test_the_critic_learns_every_token_masked_ones_too(shapes: list, seed: int):
    groups = ragged_groups(shapes, seed)
    batch = credited(groups, seed)
    inputs, columns = batch.local_inputs, batch.token_columns
    config = CriticConfig(HeadConfig(layers=0), aggregation=trajectory_mean)
    selected = np.arange(len(groups))[-2:]
    invariants = Invariants()
    invariants.enabled = True
    microbatches = packer().critic_microbatches(batch, selected, config, ProcessGroup(), invariants)
    assert not invariants.take_violations()
    selected_tokens = [
        n for n, j in enumerate(inputs.token_trajectory) if inputs.trajectory_group[j] in selected
    ]
    owners = inputs.token_trajectory[selected_tokens].tolist()
    expected = [
        (
            1.0 / (len(set(owners)) * owners.count(int(inputs.token_trajectory[n]))),
            columns.value_target[n],
            columns.value[n],
        )
        for n in selected_tokens
    ]
    packed = packed_tokens(microbatches)
    names = ("weight", "target", "proximal_value")
    actual = list(zip(*(packed.get(name, []) for name in names)))
    assert len(actual) == len(expected)
    for got, want in zip(sorted(actual), sorted(expected)):
        assert got == pytest.approx(want, abs=1e-6)


def test_padding_is_a_microbatch_of_nothing():
    padding = packer().padding_microbatch({"entropy": np.zeros(0)})
    assert padding.batch.tokens.shape == (ROWS, LENGTH)
    assert all(x.shape == (ROWS, LENGTH) for x in jax.tree.leaves(padding))
    fields = {name: values for name, values in vars(padding).items() if name != "batch"}
    assert not any(np.asarray(values).any() for values in jax.tree.leaves(fields))
    assert not np.asarray(padding.batch.action_mask).any()
    assert declared_defaults(PromptSharing) == {"prompt_tokens": 0, "sequences": 8}


class Product(SurrogateLoss):
    """A loss that is easy to repeat."""

    def __call__(
        self, logp: Any, proximal_logp: Any, advantage: Any, mask: Any, sequence_ids: Any
    ) -> Any:
        ids = sequence_ids.astype(jnp.float32)
        return -advantage * jnp.exp(logp - proximal_logp) + 0.01 * ids

    @property
    def clip_widths(self) -> tuple[float, float]:
        return 0.5, 1.0


def loss_batch(seed: int) -> tuple[np.ndarray, np.ndarray, PolicyGradientBatch]:
    """Log-probs, entropies and a batch of one row of 12 tokens."""
    rng = np.random.default_rng(seed)

    def numbers() -> np.ndarray:
        return rng.normal(size=(1, 12)).astype(np.float32)

    empty = pack((), 12, 1).to_batch(np.ones((1, 12), np.float32))
    batch = PolicyGradientBatch(
        batch=dataclasses.replace(
            empty, action_mask=rng.random((1, 12)) < 0.8, sampler_logp=numbers()
        ),
        sequence_ids=np.arange(12, dtype=np.int32)[None],
        advantage=rng.choice([-1.0, 0.0, 2.0], (1, 12)).astype(np.float32),
        nll_weight=rng.choice([0.0, 0.5], (1, 12)).astype(np.float32),
        proximal_logp=numbers(),
        ref_logp=numbers(),
        regularizer_data={
            "entropy": TokenCoefficient(coefficient=np.full((1, 12), 0.25, np.float32))
        },
    )
    return numbers(), np.abs(numbers()), batch


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("has_mismatch", [False, True])
def test_the_loss_and_its_metrics_are_their_formulas(seed: int, has_mismatch: bool):
    logp, entropy, batch = loss_batch(seed)
    sampler, mask = np.asarray(batch.batch.sampler_logp), np.asarray(batch.batch.action_mask)
    keep, trust = np.arange(12)[None] % 3 != 0, 1.0 + np.arange(12)[None] / 12

    def mismatch(current: Any, recorded: Any, masked: Any, ids: Any) -> tuple[Any, Any]:
        for actual, expected in zip((current, recorded, masked), (logp, sampler, mask)):
            np.testing.assert_array_equal(actual, expected)
        assert ids.tolist() == batch.sequence_ids.tolist()
        return jnp.asarray(trust, jnp.float32), jnp.asarray(keep)

    loss_fn = PolicyLoss(
        Product(),
        {"entropy": EntropyBonus(0.25)},
        mismatch if has_mismatch else None,
        has_reference=True,
        measures_kl=True,
    )
    loss, metrics = loss_fn(jnp.asarray(logp), jnp.asarray(entropy), batch)
    ratio = np.exp(logp - batch.proximal_logp)
    surrogate = -batch.advantage * ratio + 0.01 * batch.sequence_ids
    if has_mismatch:
        surrogate = np.where(keep, trust * surrogate, 0.0)

    def k3(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(b - a) + (a - b) - 1.0

    expected = {
        "entropy": entropy,
        "policy_loss": surrogate,
        "loss/entropy": -0.25 * entropy,
        "ref_kl": k3(logp, np.asarray(batch.ref_logp)),
        "proximal_kl": k3(np.asarray(batch.proximal_logp), logp),
        "off_policy/kl": k3(logp, sampler),
        "off_policy/logp_gap": np.abs(logp - sampler),
        "ratio_outside": np.abs(logp - batch.proximal_logp) > 0.2,
        "clipped/high": (batch.advantage > 0) & (ratio > 2.0),
        "clipped/low": (batch.advantage < 0) & (ratio < 0.5),
    }
    if has_mismatch:
        expected |= {"off_policy/trust": trust, "off_policy/rejected": ~keep}
    assert set(metrics) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(
            np.asarray(metrics[name], np.float32), values, rtol=1e-4, atol=1e-5, err_msg=name
        )
    total = surrogate - batch.nll_weight * logp - 0.25 * entropy
    np.testing.assert_allclose(loss, total, rtol=1e-4, atol=1e-5)
    plain = PolicyLoss(Product(), {}, None, has_reference=False)
    _, fewer = plain(jnp.asarray(logp), jnp.asarray(entropy), batch)
    assert set(expected) - set(fewer) - {"off_policy/trust", "off_policy/rejected"} == {
        "loss/entropy", "ref_kl", "proximal_kl",
    }  # fmt: skip


class WholeRow(Product):
    def __call__(
        self, logp: Any, proximal_logp: Any, advantage: Any, mask: Any, sequence_ids: Any
    ) -> Any:
        return super().__call__(logp, proximal_logp, advantage, mask, sequence_ids).sum()


def test_a_loss_that_is_not_per_token_is_refused():
    logp, entropy, batch = loss_batch(0)
    with pytest.raises(UserError, match=r"WholeRow must return a loss for each token"):
        PolicyLoss(WholeRow(), {}, None, has_reference=False)(
            jnp.asarray(logp), jnp.asarray(entropy), batch
        )


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["demonstration"], True),
        (["patch", "scripted"], True),
        (["sampled"], False),
        (["demonstration", "sampled"], False),
        (["demonstration", "ranked"], False),
        ([], False),
    ],
)
def test_a_demonstration_has_no_token_of_the_policy(sources: list[Any], expected: bool):
    calls = [dataclasses.replace(make_call([1], [2]), source=source) for source in sources]
    group = Group("a", (make_trajectory(*(make_turn([call]) for call in calls)),))
    assert is_demonstration(group) is expected
    other = group_of([3])
    rollouts, demonstrations = Imitation(0.5).split_groups([group, other])
    assert demonstrations == ([group] if expected else [])
    assert rollouts == ([other] if expected else [group, other])
    assert Imitation(0.5).groups_for_step([group], np.random.default_rng(0)) == [group]


def test_imitation_is_likelihood_without_advantages():
    inputs = make_credit_inputs([group_of([2, 3], [4])])
    targets = Imitation(Linear(1.0, 0.0, 4)).targets(inputs, 3)
    assert targets.advantage.tolist() == [0.0] * 3 and targets.train_mask.all()
    assert targets.nll_weight is not None and targets.nll_weight.tolist() == [1.0] * 3
    weights = targets.loss_weights(inputs, slice(0, 3))
    assert weights == pytest.approx([0.25 / 3] * 3, abs=1e-12)
    assert SelfImitation(0.5).split_groups([])[1] == [] and declared_defaults(Imitation) == {
        "aggregation": token_mean,
        "by_uncertainty": False,
    }


def test_imitation_by_uncertainty_weighs_a_token_by_p_1_minus_p():
    inputs = make_credit_inputs([group_of([2, 3], [4])])
    imitation = Imitation(1.0, by_uncertainty=True)
    with pytest.raises(UserError, match="rescore"):
        imitation.targets(inputs, 0)
    p = np.array([0.5, 0.9, 1.0])
    targets = imitation.targets(dataclasses.replace(inputs, token_logp=np.log(p)), 0)
    assert targets.nll_weight == pytest.approx([0.25, 0.09, 0.0], abs=1e-12)


def test_the_policys_weight_scales_its_loss_weights_by_the_step():
    inputs = make_credit_inputs([group_of([2, 3], [4])])
    config = datamind(Linear(1.0, 0.0, 4), filter=None)
    for step, scale in [(0, 0.0), (1, 0.25), (4, 1.0), (9, 1.0)]:
        targets = token_targets(config, inputs, step)
        weights = targets.loss_weights(inputs, slice(0, 3))
        assert weights == pytest.approx([scale / 3] * 3, abs=1e-12)


class Shift:
    """A transform without a state."""

    def __call__(self, inputs: CreditInputs, advantage: np.ndarray) -> np.ndarray:
        return advantage + 10.0


def test_self_imitation_compares_with_its_baseline():
    replay = PositiveReplay(size=1, ready_factor=0.5, require_tool_call=False)
    imitation = SelfImitation(Linear(0.5, 0.0, 2), replay, transforms=(Shift(),))
    members = tuple(make_trajectory(make_turn([make_call([1], [5])], r)) for r in (0.0, 1.0, 5.0))
    imitation.add([Group("a", members)])  # mean 2, and one better trajectory
    groups = imitation.groups_for_step([], np.random.default_rng(0))
    assert [t.total_reward for g in groups for t in g.trajectories] == [5.0]
    inputs = make_credit_inputs(groups)
    targets = imitation.targets(inputs, 1)
    assert targets.advantage.tolist() == [13.0] and targets.train_mask.tolist() == [True]
    assert targets.loss_weights(inputs, slice(0, 1)).tolist() == [0.25]
    other = SelfImitation(1.0, PositiveReplay(size=1, require_tool_call=False), (Shift(),))
    other.load(imitation.state())
    assert other.state() == imitation.state() and other.state()["transforms"] == [None]


@given(shapes=ragged_batches, seed=seeds)
@RAGGED
def test_log_probs_are_replaced_token_by_token(shapes: list, seed: int):
    groups = ragged_groups(shapes, seed)
    n = len(token_table(groups).places)
    logp = np.arange(n, dtype=np.float32)
    replaced = replace_group_logp(groups, logp)
    assert RecordedTokens.of(replaced).sampler_logp.tolist() == logp.tolist()
    assert [g.task for g in replaced] == [g.task for g in groups]


def test_the_critics_loss_and_model():
    config = CriticConfig(HeadConfig(layers=0))
    defaults = {"clip": 0.2, "aggregation": token_mean, "warmup_steps": 0, "fresh_trunk": False}
    assert declared_defaults(CriticConfig) == defaults
    policy = MeanEmbeddingPolicy()
    model = config.build_model(policy)
    params = model.init(jax.random.key(1))
    assert set(params) == {"trunk", "head"} == set(model.axes()) == set(model.trainable())
    trunk = policy.init(jax.random.key(2))
    assert model.init_from_policy(trunk, jax.random.key(3))["trunk"] is trunk
    assert all(jax.tree.leaves(model.trainable()["head"]))
    first, second = (model.init(jax.random.key(k))["trunk"]["kernel"] for k in (1, 2))
    assert not np.array_equal(first, second)
    value, old, target = (
        np.array([x], np.float32) for x in ([0.0, 1.0, 1.0], [0.5, 0.9, 0.5], [1.0, 3.0, 1.0])
    )
    empty = pack((), 3, 1).to_batch(np.zeros((1, 3), np.float32))
    batch = CriticBatch(batch=empty, target=target, proximal_value=old)
    loss, metrics = config._loss(jnp.asarray(value), batch)
    # Clipped to .3, 1 and .7; of the two distances to the target the larger one counts.
    assert np.asarray(loss) == pytest.approx(np.array([[0.5, 2.0, 0.045]]))
    assert metrics["value_loss"] is loss and metrics["value"].tolist() == value.tolist()
