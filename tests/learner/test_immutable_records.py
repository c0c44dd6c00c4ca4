"""The records of a step are frozen, and compared by identity where they hold arrays."""

import dataclasses
from typing import Any

import pytest
from support.declared_defaults import declared_defaults

from agentrl_jax.algorithms.advantages.group import AdvantageAndTarget
from agentrl_jax.algorithms.policy_gradient.credited_batch import (
    CreditedBatch,
    CreditedRecord,
    TokenTargets,
)
from agentrl_jax.algorithms.policy_gradient.critic import ValueModel
from agentrl_jax.algorithms.policy_gradient.device_loss import PolicyLoss
from agentrl_jax.algorithms.policy_gradient.microbatches import MicrobatchPacker
from agentrl_jax.distributed.auto_mesh import MemoryNeed
from agentrl_jax.learner.data_shards import DataShard
from agentrl_jax.learner.global_batch import GlobalGroups, _ColumnGather
from agentrl_jax.learner.packing import Batch, PackedLayout
from agentrl_jax.learner.sequences import (
    CollatedSequences,
    CreditInputs,
    TokenIndex,
    TrainingSequence,
)

OF_ARRAYS = (
    AdvantageAndTarget, CollatedSequences, CreditedBatch, CreditedRecord, CreditInputs,
    GlobalGroups, PackedLayout, TokenIndex, TokenTargets, TrainingSequence, ValueModel,
    _ColumnGather,
)  # fmt: skip
OF_VALUES = (DataShard, MemoryNeed, MicrobatchPacker, PolicyLoss)


@pytest.mark.parametrize("record", [*OF_ARRAYS, *OF_VALUES], ids=lambda x: x.__name__)
def test_a_record_is_frozen(record: Any):
    instance = object.__new__(record)  # without its fields
    (first, *_) = dataclasses.fields(record)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(instance, first.name, None)
    has_equality_of_fields = "__eq__" in vars(record)
    assert has_equality_of_fields == (record in OF_VALUES)


def test_without_branches_nothing_is_shared():
    images = dict.fromkeys(("images", "image_index", "rope_positions", "visible_until"))
    assert declared_defaults(Batch) == {**images, "prefix_length": 0, "branch_length": 0}
    assert declared_defaults(PackedLayout) == {
        "prefix_length": 0, "branch_length": 0, "images": None
    }  # fmt: skip
    assert declared_defaults(TokenTargets) == {
        "weight_scale": 1.0,
        "nll_weight": None,
        "value_target": None,
        "regularizer_data": None,
    }
    assert declared_defaults(PolicyLoss) == {"measures_kl": False}
    assert declared_defaults(MemoryNeed) == {"frozen_copies": 0, "engine_weights": 0}
    assert set(declared_defaults(CreditInputs).values()) == {None}
