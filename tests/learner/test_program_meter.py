"""FLOPs and seconds of the programs of learners, and the utilization that is computed of them."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import MeanEmbeddingPolicy, device_mesh, random_groups

from agentrl_jax.compiler.flops import matmul_flops
from agentrl_jax.compiler.hardware import dense_peak
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.packing import Batch, pack
from agentrl_jax.learner.program_meter import (
    PROGRAM_METER,
    ProgramKind,
    ProgramMeter,
    ProgramWork,
)
from agentrl_jax.learner.sequences import collate
from agentrl_jax.pytree import pytree_dataclass
from agentrl_jax.training import flops_utilization
from agentrl_jax.training.flops_utilization import start_meter, utilization_metrics


@pytest.fixture
def meter() -> Iterator[ProgramMeter]:
    PROGRAM_METER.start(matmul_flops)
    yield PROGRAM_METER
    PROGRAM_METER.stop()


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("TPU v4", 275e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5e", 197e12),
        ("TPU v5", 459e12),
        ("TPU v5p", 459e12),
        ("TPU v6 lite", 918e12),
        ("TPU7x", 1153.5e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989.5e12),
        ("NVIDIA H100 PCIe", 756.5e12),
        ("NVIDIA H200", 989.5e12),
        ("NVIDIA B200", 2250e12),
        ("cpu", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("TPU v99", None),
    ],
)
def test_only_listed_devices_have_a_peak(kind: str, peak: float | None):
    assert dense_peak(kind) == peak


def test_the_flops_of_programs_are_counted_once_each_call_and_per_device(meter: ProgramMeter):
    program = jax.jit(jnp.matmul)
    a, b = np.ones((8, 4), np.float32), np.ones((4, 5), np.float32)
    mesh = device_mesh(data=4)
    for _ in range(3):
        out = meter.run(program, mesh, (a, b))
    assert np.array_equal(meter.finish("score", out), a @ b)
    work = meter.take().wait()
    assert work.keys() == {"score"} and work["score"].seconds > 0
    assert work["score"].flops == 3 * 2 * 8 * 4 * 5 / 4
    assert meter.take().wait() == {}


def test_nothing_is_measured_before_it_is_started():
    meter, program = ProgramMeter(), jax.jit(jnp.sin)
    out = meter.run(program, device_mesh(), (np.ones(3, np.float32),))
    assert meter.finish("update", out) is out and meter.take().wait() == {}
    meter.stop()


@pytree_dataclass
class LearnerBatch:
    batch: Batch


def test_an_update_counts_the_gradient_programs_of_its_microbatches(meter: ProgramMeter):
    policy = MeanEmbeddingPolicy()
    learner = Learner(
        policy, AdamWConfig().build(10), lambda logp, entropy, batch: (-logp, {}), device_mesh()
    )
    sequences = collate(random_groups([[[(3, 2, False, 1.0)], [(3, 4, False, 0.0)]]])).sequences
    layout = pack(sequences, 16, 8)
    batch = layout.to_batch(np.ones((layout.num_bins, 16), np.float32))
    state = learner.init(jax.random.key(0), policy.init(jax.random.key(0)))
    per_microbatch = matmul_flops(learner.trace(LearnerBatch(batch=batch))[0].jaxpr)
    for count in (1, 3):
        state, _ = learner.update(state, [LearnerBatch(batch=batch)] * count)
        (work,) = meter.take().wait().values()
        assert work.flops == count * per_microbatch / device_mesh().devices.size > 0
    learner.score(state.params, batch)
    assert meter.take().wait().keys() == {"score"}


def test_utilization_is_of_the_peak_and_of_the_seconds():
    work: dict[ProgramKind, ProgramWork] = {
        "update": ProgramWork(6e12, 2.0),
        "score": ProgramWork(1e12, 1.0),
    }
    assert utilization_metrics(work, 10.0, 10e12) == {
        "mfu/update": pytest.approx(0.3),
        "mfu/score": pytest.approx(0.1),
        "mfu/step": pytest.approx(0.07),
    }
    assert utilization_metrics(work, 10.0, None) == {} == utilization_metrics({}, 10.0, 1e12)


def test_a_device_without_a_peak_is_named_once_and_not_measured(monkeypatch: pytest.MonkeyPatch):
    lines: list[str] = []
    mesh = device_mesh()
    assert start_meter(mesh, lines.append) is None
    assert lines == [
        "no metrics mfu/...: there is no published peak of this device (cpu) in "
        "agentrl_jax/compiler/hardware.py"
    ]
    monkeypatch.setattr(flops_utilization, "dense_peak", lambda kind: 1e12)
    assert start_meter(mesh, lines.append) == 1e12 and len(lines) == 1
    PROGRAM_METER.stop()
