"""What an engine keeps of other calls: parked rows, shared prompts, branches; new weights; forced tokens, alternatives, images."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conversations import (
    OTHERS,
    PARAMS,
    POLICY,
    POSITIONS,
    VOCABULARY,
    Conversation,
    check_row,
    recorded,
    said,
    settings_of,
    start,
    taken_in,
    together,
    tokens,
)  # fmt: skip
from hand_made import counted_compilations, logp_alone, make_trajectory, make_turn

from agentrl_jax.engine import Engine, Image
from agentrl_jax.errors import UserError
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.policy import Inputs
from agentrl_jax.rows import rows_of
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.trajectories import Call, Sampling

PROMPT = np.random.default_rng(9).integers(0, VOCABULARY, 21, np.int32)


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """Parks, and records the three likeliest tokens."""
    engine = start(parked=12, alternatives=3, spans=1)
    yield engine
    engine.close()


def since(engine: LocalEngine, before: dict[str, int], name: str) -> int:
    return engine.counts[name] - before[name]


def finished(futures: Sequence["Future[Call]"]) -> list[Call]:
    return [future.result(timeout=60) for future in futures]


def let_go(engine: LocalEngine, calls: Sequence[Call]) -> None:
    for call in calls:
        engine.release(call)


def test_a_parked_conversation_goes_on_to_the_bit_and_nothing_is_prefilled_twice(engine: LocalEngine):
    alone = [recorded(Conversation(engine, seed, settings_of).play(4)) for seed in range(16)]
    before, crowd = engine.counts, [Conversation(engine, seed, settings_of) for seed in range(16)]
    for _ in range(4):
        for conversation in crowd:  # each waits for the fifteen others between its turns
            conversation.turn()
    let_go(engine, [conversation.calls[-1] for conversation in crowd])
    assert [recorded(conversation.calls) for conversation in crowd] == alone
    assert since(engine, before, "evictions") == 0 and engine.places == 16
    assert since(engine, before, "parked") >= since(engine, before, "restored") >= 3 * 12
    assert taken_in(engine, before) == sum(len(said(seed, turn)) for seed in range(16) for turn in range(4)) - 16


def test_a_crowd_in_flight_at_once_parks_and_says_the_same(engine: LocalEngine):
    alone = [recorded(Conversation(engine, seed, settings_of).play(4)) for seed in range(40, 56)]
    crowd = [Conversation(engine, seed, settings_of) for seed in range(40, 56)]
    together(crowd, 4)
    assert [recorded(conversation.calls) for conversation in crowd] == alone


def test_a_groups_prompt_is_prefilled_once_and_copied(engine: LocalEngine):
    before = engine.counts
    futures = [engine.submit(PROMPT, Sampling(budget=6), (0, member)) for member in range(8)]  # more than there are rows
    group = finished(futures)
    let_go(engine, group)
    assert since(engine, before, "prefill_tokens") == len(PROMPT) - 1
    assert since(engine, before, "copies") == 7 and since(engine, before, "copied_tokens") == 7 * (len(PROMPT) - 1)
    other = engine.submit(said(3, 3), Sampling(budget=1), (9,)).result(timeout=60)  # writes over some row
    alone = [engine.submit(PROMPT, Sampling(budget=6), (0, member)).result(timeout=60) for member in range(8)]
    assert recorded(group) == recorded(alone) and len({tuple(call.action.tolist()) for call in group}) == 8
    let_go(engine, [other, *alone])


def test_a_prompt_under_new_weights_is_not_that_of_the_old_ones(engine: LocalEngine):
    old = engine.submit(PROMPT, Sampling(budget=6), (1,)).result(timeout=60)
    engine.publish(OTHERS, 1)
    new = engine.submit(PROMPT, Sampling(budget=6), (1,)).result(timeout=60)
    (row,) = rows_of(make_trajectory(make_turn([new])))
    check_row(row, OTHERS)
    engine.publish(PARAMS, 0)
    again = engine.submit(PROMPT, Sampling(budget=6), (1,)).result(timeout=60)
    assert recorded([again]) == recorded([old])
    let_go(engine, [old, new, again])


def test_a_branch_at_any_turn_is_a_copy_and_its_trunk_goes_on(engine: LocalEngine):
    sampling = Sampling(budget=5)
    alone = recorded(Conversation(engine, 60, sampling).play(5))
    trunk = Conversation(engine, 60, sampling)
    for _ in range(4):
        trunk.turn()
    before, branches = engine.counts, []
    for turn in (2, 0, 1, 3):
        ids = np.concatenate([trunk.calls[turn].ids, said(61, turn)])
        branches += finished([engine.submit(ids, sampling, (61, turn, child), trunk.calls[turn]) for child in range(2)])
    # The last one of turn 3 may go on in the trunk's own row; each token that a branch shares was computed once.
    assert taken_in(engine, before) == 2 * sum(len(said(61, turn)) for turn in range(4))
    assert since(engine, before, "copies") >= 7
    assert all(call.parent is trunk.calls[turn // 2] for turn, call in zip((4, 4, 0, 0, 2, 2, 6, 6), branches))
    for call in branches:
        plain = engine.submit(call.prompt, sampling, call.key).result(timeout=60)
        assert plain.action.tolist() == call.action.tolist()
        np.testing.assert_allclose(plain.sampler_logp, call.sampler_logp, atol=1e-5)
        let_go(engine, [plain])
    trunk.turn()
    let_go(engine, [*branches, *trunk.calls])
    assert tokens(trunk.calls) == [x[1] for x in alone]


def test_nothing_is_kept_of_what_was_released(engine: LocalEngine):
    places = engine._places
    assert not any(place.chain or place.request for place in (*places.rows, *places.parked)) and not places._home


def test_new_weights_keep_or_recompute_what_is_cached(engine: LocalEngine):
    kept, fresh = (Conversation(engine, 70, Sampling(budget=6)) for _ in range(2))
    for conversation, recompute in ((kept, False), (fresh, True)):
        conversation.turn()
        conversation.turn()
        before = engine.counts
        engine.publish(OTHERS, 1, recompute=recompute)
        conversation.turn()
        new = len(conversation.calls[-1].prompt) - 1 if recompute else len(said(70, 2))
        assert taken_in(engine, before) == new and (conversation.calls[-1].version == 1).all()
        engine.publish(PARAMS, 0)
    let_go(engine, [kept.calls[-1], fresh.calls[-1]])
    (row,) = rows_of(make_trajectory(make_turn([fresh.calls[-1]])))
    check_row(row, OTHERS)  # as if it had never been written under other weights
    (row,) = rows_of(make_trajectory(make_turn([kept.calls[-1]])))
    assert np.abs(row.sampler_logp - logp_alone(POLICY, OTHERS, row, POSITIONS))[row.action_mask].max() > 1e-3


def test_a_call_at_work_is_recomputed_too(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch):
    decode, bursts = engine._resident.decode, []

    def publishing(*arguments: Any) -> Any:
        out = decode(*arguments)
        bursts.append(1)
        if len(bursts) == 2:
            engine.publish(OTHERS, 1, recompute=True)
        return out

    monkeypatch.setattr(engine._resident, "decode", publishing)
    call = engine.submit(PROMPT, Sampling(budget=18), (5,)).result(timeout=60)
    monkeypatch.undo()
    (row,) = rows_of(make_trajectory(make_turn([call])))
    old, new = (call.version == version for version in (0, 1))
    assert 0 < old.sum() < 18 and old.sum() + new.sum() == 18 and not np.diff(call.version).min() < 0
    for params, mine in ((PARAMS, old), (OTHERS, new)):
        where = np.flatnonzero(row.action_mask)[mine]
        np.testing.assert_allclose(call.sampler_logp[mine], logp_alone(POLICY, params, row, POSITIONS)[where], atol=1e-5)
    engine.publish(PARAMS, 0)
    let_go(engine, [call])


@pytest.mark.slow
def test_new_weights_can_wait_until_calls_have_ended():
    engine = start(finish_first=True, rows=2)
    waiting = [engine.submit(said(seed, 0), Sampling(budget=50), (seed,)) for seed in range(4)]
    while not all(future.running() for future in waiting[:2]):
        pass
    engine.publish(OTHERS, 1)
    calls = finished(waiting)
    assert [set(call.version.tolist()) for call in calls] == [{0}, {0}, {1}, {1}]
    engine.close()


def test_forced_tokens_open_the_action_and_are_not_trained_on(engine: LocalEngine):
    plain = engine.submit(PROMPT, Sampling(budget=9), (2,)).result(timeout=60)
    for forced in (plain.action[:4].tolist(), [1, 2, 3], list(range(12))):
        call = engine.submit(PROMPT, Sampling(budget=9, forced=tuple(forced)), (2,)).result(timeout=60)
        n = min(len(forced), 9)
        assert call.action[:n].tolist() == forced[:n] and len(call.action) == 9 and call.finish_reason == "budget"
        assert not call.sampler_logp[:n].any()  # they were certain
        (row,) = rows_of(make_trajectory(make_turn([call])))
        assert row.action_mask.sum() == 9 - n
        check_row(row)
        if n == 4:
            assert call.action.tolist() == plain.action.tolist()
        let_go(engine, [call])
    ended = engine.submit(PROMPT, Sampling(budget=9, forced=(1, 2), stop_ids=(2,)), (2,)).result(timeout=60)
    assert ended.action.tolist() == [1, 2] and ended.finish_reason == "stop"
    let_go(engine, [plain, ended])


def test_the_likeliest_tokens_are_recorded(engine: LocalEngine):
    for temperature in (1.0, 0.7):
        call = engine.submit(PROMPT, Sampling(budget=7, temperature=temperature), (3,)).result(timeout=60)
        ids = call.ids[None]
        inputs = Inputs(tokens=ids, positions=np.arange(ids.shape[1], dtype=np.int32)[None], segment_ids=np.ones_like(ids))
        logits = POLICY.logits(PARAMS, POLICY.apply(PARAMS, inputs).hidden)[0, len(PROMPT) - 1 : -1]
        logp = np.asarray(jax.nn.log_softmax(logits / temperature))
        assert call.alternatives is not None and call.alternative_logp is not None
        np.testing.assert_array_equal(call.alternatives, np.argsort(-logp)[:, :3])
        np.testing.assert_allclose(call.alternative_logp, -np.sort(-logp)[:, :3], atol=1e-5)
        let_go(engine, [call])


def with_images(engine: LocalEngine, images: Sequence[Image], key: int = 0) -> Call:
    call = engine.submit(PROMPT, Sampling(budget=5), (key,), images=images).result(timeout=60)
    engine.release(call)
    return call


@pytest.mark.slow
def test_an_image_stands_in_for_its_placeholders():
    engine = start(images=True)
    random = np.random.default_rng(0)
    width = POLICY.config.width
    images = [Image(2, random.normal(size=(7, width)).astype(np.float32)), Image(15, random.normal(size=(3, width)).astype(np.float32))]
    call, again, without = with_images(engine, images), with_images(engine, images), with_images(engine, [])
    assert recorded([call]) == recorded([again]) != recorded([without]) and call.image_spans == ((2, 9), (15, 18))
    ids = call.ids[None]
    embeddings, embedded = np.zeros((1, ids.shape[1], width), np.float32), np.zeros(ids.shape, bool)
    for image in images:
        span = slice(image.start, image.start + len(image.embeddings))
        embeddings[0, span], embedded[0, span] = image.embeddings, True
    inputs = Inputs(
        tokens=ids, positions=np.arange(ids.shape[1], dtype=np.int32)[None], segment_ids=np.ones_like(ids),
        embeddings=jnp.asarray(embeddings), embedded=jnp.asarray(embedded),
    )  # fmt: skip
    logp = jax.nn.log_softmax(POLICY.logits(PARAMS, POLICY.apply(PARAMS, inputs).hidden))[0, len(PROMPT) - 1 : -1]
    np.testing.assert_allclose(call.sampler_logp, np.asarray(logp)[np.arange(5), call.action], atol=1e-5)
    with counted_compilations() as compiled:
        with_images(engine, images[:1], 4)
    assert compiled == []
    for wrong in (Image(0, np.zeros((2, width + 1), np.float32)), Image(-1, images[1].embeddings), Image(18, images[1].embeddings)):
        with pytest.raises(ValueError, match=r"an image is \[n, 16\] and ends before the prompt's last token"):
            with_images(engine, [wrong])
    engine.close()


def test_images_need_an_engine_that_takes_them(engine: LocalEngine):
    with pytest.raises(ValueError, match="images=True"):
        with_images(engine, [Image(0, np.zeros((1, POLICY.config.width), np.float32))])


SPLITTABLE = DecoderConfig(layers=2, width=16, hidden=32, heads=4, kv_heads=2, head_size=8).build(VOCABULARY)


@pytest.mark.parametrize(
    "mesh", [{"data": 4}, *(pytest.param(mesh, marks=pytest.mark.slow) for mesh in ({"data": 1, "tensor": 2}, {"data": 2, "tensor": 4}))]
)
def test_an_engine_over_devices_samples_what_one_does(mesh: dict[str, int]):
    params = SPLITTABLE.init(jax.random.key(3))
    told = []
    for sizes in ({"data": 1}, mesh):
        config = EngineConfig(rows=8, parked=8, positions=POSITIONS, chunk=4, burst=3, longest=6, patience=0.0, mesh=MeshConfig(**sizes))
        engine = LocalEngine(SPLITTABLE, config, params)
        crowd = [Conversation(engine, seed, settings_of) for seed in range(16)]
        with counted_compilations() as compiled:
            together(crowd, 4)
            group = finished([engine.submit(PROMPT, Sampling(budget=6), (0, member)) for member in range(8)])
            engine.publish(params, 1)
        assert compiled == [] and engine.counts["parked"] > 0 and engine.counts["copies"] > 0
        told.append([c for conversation in crowd for c in conversation.calls] + group)
        if sizes is mesh:
            split = {len(x.sharding.device_set) for x in jax.tree.leaves((engine._params, engine._resident._cache))}
            assert split == {int(np.prod(list(mesh.values())))}
            for x in jax.tree.leaves(engine._params):  # what several devices of a CPU hold is in memory once
                held = {(str(shard.index), shard.data.unsafe_buffer_pointer()) for shard in x.addressable_shards}
                assert len(held) == len({index for index, _ in held})
            shard = engine._resident._cache.keys[0].addressable_shards[0].data.shape
            assert shard == (8 // mesh["data"], 1 if mesh.get("tensor") == 2 else 2, POSITIONS, 8)  # two key heads are not split in four
        engine.close()
    for one, many in zip(*told):
        assert many.action.tolist() == one.action.tolist()
        np.testing.assert_allclose(many.sampler_logp, one.sampler_logp, atol=1e-5)


@pytest.mark.slow
def test_learner_and_sampler_may_have_devices_of_their_own():
    config = EngineConfig(rows=4, positions=POSITIONS, mesh=MeshConfig(data=2), first_device=6)
    engine = LocalEngine(POLICY, config, PARAMS)
    devices = {device for x in jax.tree.leaves((engine._params, engine._resident._cache)) for device in x.devices()}
    assert devices == set(jax.local_devices()[6:])
    Conversation(engine, 0, Sampling(budget=3)).play(2)
    engine.close()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"mesh": MeshConfig(data=1, fsdp=2)}, "not over fsdp|over fsdp they would be gathered"),
        ({"mesh": MeshConfig(data=4), "first_device": 6}, "needs 4 devices; from first_device=6 on there are 2"),
        ({"mesh": MeshConfig(data=4), "rows": 6}, "must be multiples of its 4 data devices"),
        ({"longest": 2, "burst": 3}, "cannot be shorter than its burst"),
        ({"parked": -1}, "an engine needs"),
    ],
)
def test_an_engine_that_does_not_fit_is_refused(wrong: dict[str, Any], words: str):
    with pytest.raises(UserError, match=words):
        start(**wrong)


def test_it_is_an_engine(engine: LocalEngine):
    assert isinstance(engine, Engine)
