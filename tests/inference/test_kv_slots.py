"""Reuse of KV caches: parked slots, prompts, branches; new weights, forced tokens, images."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
import pytest
from support.conversations import (
    OTHER_PARAMS,
    PARAMS,
    POLICY,
    POSITIONS,
    VOCAB_SIZE,
    Conversation,
    action_tokens,
    call_contents,
    check_sampler_logp,
    environment_tokens,
    play_concurrently,
    prompt_tokens_computed,
    sampling_for,
    start_engine,
)  # fmt: skip
from support.fixtures import make_trajectory, make_turn, record_compilations, unpacked_logp

from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.engine import Engine
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.learner.sequences import sequences_of
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.trajectories import Call, Sampling

PROMPT = np.random.default_rng(9).integers(0, VOCAB_SIZE, 21, np.int32)


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """With parked slots and the three likeliest tokens."""
    engine = start_engine(parked_slots=12, alternatives=3, spans=1)
    yield engine
    engine.close()


def count_since(engine: LocalEngine, before: dict[str, int], name: str) -> int:
    return engine.counts[name] - before[name]


def finished(futures: Sequence["Future[Call]"]) -> list[Call]:
    return [future.result(timeout=60) for future in futures]


def release_all(engine: LocalEngine, calls: Sequence[Call]) -> None:
    for call in calls:
        engine.release(call)


@pytest.mark.slow
def test_a_parked_conversation_continues_bit_for_bit_and_prefills_nothing_twice(
    engine: LocalEngine,
):
    alone = [call_contents(Conversation(engine, seed, sampling_for).play(4)) for seed in range(16)]
    before, crowd = engine.counts, [Conversation(engine, seed, sampling_for) for seed in range(16)]
    for _ in range(4):
        for conversation in crowd:  # each waits for the fifteen others between its turns
            conversation.play_turn()
    release_all(engine, [conversation.calls[-1] for conversation in crowd])
    assert [call_contents(conversation.calls) for conversation in crowd] == alone
    assert count_since(engine, before, "evictions") == 0 and engine.num_slots == 16
    assert (
        count_since(engine, before, "parked") >= count_since(engine, before, "restored") >= 3 * 12
    )
    assert (
        prompt_tokens_computed(engine, before)
        == sum(len(environment_tokens(seed, turn)) for seed in range(16) for turn in range(4)) - 16
    )


def test_concurrent_conversations_are_parked_and_sample_the_same(engine: LocalEngine):
    alone = [
        call_contents(Conversation(engine, seed, sampling_for).play(4)) for seed in range(40, 56)
    ]
    crowd = [Conversation(engine, seed, sampling_for) for seed in range(40, 56)]
    play_concurrently(crowd, 4)
    assert [call_contents(conversation.calls) for conversation in crowd] == alone


def test_a_groups_prompt_is_prefilled_once_and_copied(engine: LocalEngine):
    before = engine.counts
    futures = [
        engine.submit(PROMPT, Sampling(budget=6), (0, member)) for member in range(8)
    ]  # more than rows
    group = finished(futures)
    release_all(engine, group)
    assert count_since(engine, before, "prefill_tokens") == len(PROMPT) - 1
    assert count_since(engine, before, "copies") == 7 and count_since(
        engine, before, "copied_tokens"
    ) == 7 * (len(PROMPT) - 1)
    other = engine.submit(environment_tokens(3, 3), Sampling(budget=1), (9,)).result(
        timeout=60
    )  # overwrites some row
    alone = [
        engine.submit(PROMPT, Sampling(budget=6), (0, member)).result(timeout=60)
        for member in range(8)
    ]
    assert (
        call_contents(group) == call_contents(alone)
        and len({tuple(call.action.tolist()) for call in group}) == 8
    )
    release_all(engine, [other, *alone])


def test_a_prompt_cached_under_old_weights_is_not_reused(engine: LocalEngine):
    old = engine.submit(PROMPT, Sampling(budget=6), (1,)).result(timeout=60)
    engine.publish(OTHER_PARAMS, 1)
    new = engine.submit(PROMPT, Sampling(budget=6), (1,)).result(timeout=60)
    (sequence,) = sequences_of(make_trajectory(make_turn([new])))
    check_sampler_logp(sequence, OTHER_PARAMS)
    engine.publish(PARAMS, 0)
    again = engine.submit(PROMPT, Sampling(budget=6), (1,)).result(timeout=60)
    assert call_contents([again]) == call_contents([old])
    release_all(engine, [old, new, again])


def test_a_branch_at_any_turn_is_a_copy_and_its_trunk_continues(engine: LocalEngine):
    sampling = Sampling(budget=5)
    alone = call_contents(Conversation(engine, 60, sampling).play(5))
    trunk = Conversation(engine, 60, sampling)
    for _ in range(4):
        trunk.play_turn()
    before, branches = engine.counts, []
    for turn in (2, 0, 1, 3):
        ids = np.concatenate([trunk.calls[turn].ids, environment_tokens(61, turn)])
        branches += finished(
            [
                engine.submit(ids, sampling, (61, turn, child), trunk.calls[turn])
                for child in range(2)
            ]
        )
    # The last one of turn 3 may reuse the trunk's own row; tokens that branches share are computed
    # once.
    assert prompt_tokens_computed(engine, before) == 2 * sum(
        len(environment_tokens(61, turn)) for turn in range(4)
    )
    assert count_since(engine, before, "copies") >= 7
    assert all(
        call.parent is trunk.calls[turn // 2]
        for turn, call in zip((4, 4, 0, 0, 2, 2, 6, 6), branches)
    )
    for call in branches:
        plain = engine.submit(call.prompt, sampling, call.key).result(timeout=60)
        assert plain.action.tolist() == call.action.tolist()
        np.testing.assert_allclose(plain.sampler_logp, call.sampler_logp, atol=1e-5)
        release_all(engine, [plain])
    trunk.play_turn()
    release_all(engine, [*branches, *trunk.calls])
    assert action_tokens(trunk.calls) == [x[1] for x in alone]


def test_released_calls_leave_nothing_cached(engine: LocalEngine):
    table = engine._slot_table
    assert (
        not any(slot.cached_calls or slot.request for slot in (*table.rows, *table.parked_slots))
        and not table._slot_of_call
    )


def test_new_weights_keep_or_recompute_what_is_cached(engine: LocalEngine):
    cached, fresh = (Conversation(engine, 70, Sampling(budget=6)) for _ in range(2))
    for conversation, recompute in ((cached, False), (fresh, True)):
        conversation.play_turn()
        conversation.play_turn()
        before = engine.counts
        engine.publish(OTHER_PARAMS, 1, recompute=recompute)
        conversation.play_turn()
        new = (
            len(conversation.calls[-1].prompt) - 1 if recompute else len(environment_tokens(70, 2))
        )
        assert (
            prompt_tokens_computed(engine, before) == new
            and (conversation.calls[-1].version == 1).all()
        )
        engine.publish(PARAMS, 0)
    release_all(engine, [cached.calls[-1], fresh.calls[-1]])
    (sequence,) = sequences_of(make_trajectory(make_turn([fresh.calls[-1]])))
    check_sampler_logp(sequence, OTHER_PARAMS)  # as if nothing had been cached under other weights
    (sequence,) = sequences_of(make_trajectory(make_turn([cached.calls[-1]])))
    assert (
        np.abs(sequence.sampler_logp - unpacked_logp(POLICY, OTHER_PARAMS, sequence, POSITIONS))[
            sequence.action_mask
        ].max()
        > 1e-3
    )


def test_a_call_in_progress_is_recomputed_too(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch):
    decode, decodes = engine._device_state.decode, []

    def publishing(*arguments: Any) -> Any:
        out = decode(*arguments)
        decodes.append(1)
        if len(decodes) == 2:
            engine.publish(OTHER_PARAMS, 1, recompute=True)
        return out

    monkeypatch.setattr(engine._device_state, "decode", publishing)
    call = engine.submit(PROMPT, Sampling(budget=18), (5,)).result(timeout=60)
    monkeypatch.undo()
    (sequence,) = sequences_of(make_trajectory(make_turn([call])))
    old, new = (call.version == version for version in (0, 1))
    assert (
        0 < old.sum() < 18 and old.sum() + new.sum() == 18 and not np.diff(call.version).min() < 0
    )
    for params, mask in ((PARAMS, old), (OTHER_PARAMS, new)):
        where = np.flatnonzero(sequence.action_mask)[mask]
        np.testing.assert_allclose(
            call.sampler_logp[mask],
            unpacked_logp(POLICY, params, sequence, POSITIONS)[where],
            atol=1e-5,
        )
    engine.publish(PARAMS, 0)
    release_all(engine, [call])


@pytest.mark.slow
def test_new_weights_can_wait_until_calls_have_ended():
    engine = start_engine(drain_before_update=True, rows=2)
    waiting = [
        engine.submit(environment_tokens(seed, 0), Sampling(budget=50), (seed,))
        for seed in range(4)
    ]
    while not all(future.running() for future in waiting[:2]):
        pass
    engine.publish(OTHER_PARAMS, 1)
    calls = finished(waiting)
    assert [set(call.version.tolist()) for call in calls] == [{0}, {0}, {1}, {1}]
    engine.close()


def test_forced_tokens_open_the_action_and_are_not_trained_on(engine: LocalEngine):
    plain = engine.submit(PROMPT, Sampling(budget=9), (2,)).result(timeout=60)
    for forced in (plain.action[:4].tolist(), [1, 2, 3], list(range(12))):
        call = engine.submit(PROMPT, Sampling(budget=9, forced=tuple(forced)), (2,)).result(
            timeout=60
        )
        n = min(len(forced), 9)
        assert (
            call.action[:n].tolist() == forced[:n]
            and len(call.action) == 9
            and call.finish_reason == "budget"
        )
        assert not call.sampler_logp[:n].any()  # they are certain
        (sequence,) = sequences_of(make_trajectory(make_turn([call])))
        assert sequence.action_mask.sum() == 9 - n
        check_sampler_logp(sequence)
        if n == 4:
            assert call.action.tolist() == plain.action.tolist()
        release_all(engine, [call])
    ended = engine.submit(PROMPT, Sampling(budget=9, forced=(1, 2), stop_ids=(2,)), (2,)).result(
        timeout=60
    )
    assert ended.action.tolist() == [1, 2] and ended.finish_reason == "stop"
    release_all(engine, [plain, ended])


def test_the_likeliest_tokens_are_recorded(engine: LocalEngine):
    for temperature in (1.0, 0.7):
        call = engine.submit(PROMPT, Sampling(budget=7, temperature=temperature), (3,)).result(
            timeout=60
        )
        ids = call.ids[None]
        inputs = PolicyInputs(
            tokens=ids,
            positions=np.arange(ids.shape[1], dtype=np.int32)[None],
            segment_ids=np.ones_like(ids),
        )
        logits = POLICY.logits(PARAMS, POLICY.apply(PARAMS, inputs).hidden)[0, len(PROMPT) - 1 : -1]
        logp = np.asarray(jax.nn.log_softmax(logits / temperature))
        assert call.alternatives is not None and call.alternative_logp is not None
        np.testing.assert_array_equal(call.alternatives, np.argsort(-logp)[:, :3])
        np.testing.assert_allclose(call.alternative_logp, -np.sort(-logp)[:, :3], atol=1e-5)
        release_all(engine, [call])


SPLITTABLE = DecoderConfig(layers=2, width=16, hidden=32, heads=4, kv_heads=2, head_size=8).build(
    VOCAB_SIZE
)


@pytest.mark.parametrize(
    "mesh",
    [
        {"data": 4},
        *(
            pytest.param(mesh, marks=pytest.mark.slow)
            for mesh in ({"data": 1, "tensor": 2}, {"data": 2, "tensor": 4})
        ),
    ],
)
def test_an_engine_over_several_devices_samples_what_one_device_does(mesh: dict[str, int]):
    params = SPLITTABLE.init(jax.random.key(3))
    calls_by_mesh = []
    for sizes in ({"data": 1}, mesh):
        config = EngineConfig(
            rows=8,
            parked_slots=8,
            positions=POSITIONS,
            prefill_chunk=4,
            min_decode_steps=3,
            max_decode_steps=6,
            batching_delay=0.0,
            mesh=MeshConfig(**sizes),
        )
        engine = LocalEngine(SPLITTABLE, config, params)
        engine.publish(params, 0)
        crowd = [Conversation(engine, seed, sampling_for) for seed in range(16)]
        with record_compilations() as compiled:
            play_concurrently(crowd, 4)
            group = finished(
                [engine.submit(PROMPT, Sampling(budget=6), (0, member)) for member in range(8)]
            )
            engine.publish(params, 1)
        assert compiled == [] and engine.counts["parked"] > 0 and engine.counts["copies"] > 0
        calls_by_mesh.append([c for conversation in crowd for c in conversation.calls] + group)
        if sizes is mesh:
            split = {
                len(x.sharding.device_set)
                for x in jax.tree.leaves((engine._params, engine._device_state._cache))
            }
            assert split == {int(np.prod(list(mesh.values())))}
            # shared by several CPU devices
            for x in jax.tree.leaves(engine._params) if mesh["data"] > 1 else ():
                buffers = {
                    (str(shard.index), shard.data.unsafe_buffer_pointer())
                    for shard in x.addressable_shards
                }
                assert len(buffers) == len({index for index, _ in buffers})
            shard = engine._device_state._cache.keys[0].addressable_shards[0].data.shape
            assert shard == (
                8 // mesh["data"],
                1 if mesh.get("tensor") == 2 else 2,
                POSITIONS,
                8,
            )  # two key heads are not split in four
        engine.close()
    for expected, actual in zip(*calls_by_mesh):
        assert actual.action.tolist() == expected.action.tolist()
        np.testing.assert_allclose(actual.sampler_logp, expected.sampler_logp, atol=1e-5)


@pytest.mark.slow
def test_learner_and_sampler_may_use_different_devices():
    config = EngineConfig(rows=4, positions=POSITIONS, mesh=MeshConfig(data=2), first_device=6)
    engine = LocalEngine(POLICY, config, PARAMS)
    devices = {
        device
        for x in jax.tree.leaves((engine._params, engine._device_state._cache))
        for device in x.devices()
    }
    assert devices == set(jax.local_devices()[6:])
    Conversation(engine, 0, Sampling(budget=3)).play(2)
    engine.close()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"mesh": MeshConfig(data=1, fsdp=2)}, "not over fsdp|over fsdp they would be gathered"),
        (
            {"mesh": MeshConfig(data=4), "first_device": 6},
            "needs 4 devices; from first_device=6 on there are 2",
        ),
        ({"mesh": MeshConfig(data=4), "rows": 6}, "must be multiples of its 4 data devices"),
        (
            {"max_decode_steps": 2, "min_decode_steps": 3},
            "cannot be less than its min_decode_steps",
        ),
        ({"parked_slots": -1}, "an engine needs"),
    ],
)
def test_an_engine_that_does_not_fit_its_devices_is_refused(wrong: dict[str, Any], words: str):
    with pytest.raises(UserError, match=words):
        start_engine(**wrong)


def test_it_is_an_engine(engine: LocalEngine):
    assert isinstance(engine, Engine)
