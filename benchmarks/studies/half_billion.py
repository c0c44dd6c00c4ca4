"""Load, train, save and reload a decoder of half a billion parameters on eight simulated devices.

    python benchmarks/studies/half_billion.py [--folder=DIR]

Writes a folder with random bfloat16 weights of the shape of Qwen2.5-0.5B (1 GB in three files; DIR
is reused where it exists), then measures each step in a process of its own. Prints a JSON line per
step, sizes in MB:

    {"step": "load", "mesh": "fsdp=8", "seconds": ..., "peak": ..., "stays": ..., "largest": ...,
    "ratio": ...}

`ratio` is the temporary memory of loading, (peak - before - stays) / largest tensor. The benchmark
fails above 1.2, where a loss does not fall, and where the logits of the saved weights are not those
of `transformers` (if torch is installed).
"""

import argparse
import importlib.util
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
MB = 10**6
MAX_OVERHEAD = 1.2  # largest temporary memory of loading, in largest tensors
ROWS, LENGTH = 8, 64


def memory(name: str) -> float:
    """A line of this process's status, `VmRSS` or `VmHWM`, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith(name))


def report(step: str, **numbers: Any) -> None:
    rounded = {
        name: float(f"{x:.4g}") if isinstance(x, float) else x for name, x in numbers.items()
    }
    print(json.dumps({"step": step, **rounded}), flush=True)


def array_bytes(tree: Any) -> list[int]:
    """Bytes of each array, not counting replicas."""
    import jax

    return [x.nbytes for x in jax.tree.leaves(tree)]


def make(folder: Path) -> None:
    """Write the folder with random weights, also of norms and biases."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from agentrl_jax.models.decoder import DecoderConfig
    from agentrl_jax.models.hf.configs import config_to_json
    from agentrl_jax.models.hf.parameter_trees import save_tensors, tensors_to_save
    from agentrl_jax.models.hf.policy_tensors import tensor_layouts
    from agentrl_jax.models.rope import Rope

    config = DecoderConfig(
        layers=24,
        width=896,
        hidden=4864,
        heads=14,
        kv_heads=2,
        head_size=64,
        rope=Rope(1e6),
        qkv_bias=True,
        tied_head=True,
        param_dtype="bfloat16",
    )
    policy, random, began = config.build(151_936), np.random.default_rng(0), time.monotonic()

    def random_weight(path: Any, x: Any) -> jax.Array:
        name = jax.tree_util.keystr(path)
        mean, spread = (1.0, 0.1) if "norm" in name else (0.0, 0.02)
        return jnp.asarray(
            mean + spread * random.standard_normal(x.shape, np.float32), jnp.bfloat16
        )

    params = jax.tree_util.tree_map_with_path(
        random_weight, jax.eval_shape(policy.init, jax.random.key(0))
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder, tensors_to_save(tensor_layouts(config), params), max_file_bytes=450 * MB)
    data = config_to_json(config, policy.vocab_size) | {"dtype": "bfloat16"}
    # Written last: a folder with it is complete.
    (folder / "config.json").write_text(json.dumps(data, indent=2) + "\n")
    report(
        "make",
        seconds=time.monotonic() - began,
        parameters=sum(x.size for x in jax.tree.leaves(params)),
        stays=sum(array_bytes(params)) / MB,
    )


def load(folder: Path, fsdp: int, dtype: str) -> None:
    """Time and peak memory of loading onto `fsdp` devices."""
    import jax

    from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
    from agentrl_jax.models import load

    mesh = make_mesh(MeshConfig(fsdp=fsdp), jax.devices()[:fsdp])
    before, began = memory("VmRSS"), time.monotonic()
    _, params = load(folder, mesh, param_dtype=dtype)
    jax.block_until_ready(params)
    seconds, peak = time.monotonic() - began, memory("VmHWM")
    ru_maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    layers = [
        x.nbytes // (x.shape[0] if "layers" in jax.tree_util.keystr(path) else 1)
        for path, x in jax.tree.leaves_with_path(params)
    ]
    stays, largest = sum(array_bytes(params)) / MB, max(layers) / MB
    extra = peak - before - stays
    report(
        "load",
        mesh=f"fsdp={fsdp}",
        dtype=dtype,
        seconds=seconds,
        before=before,
        peak=peak,
        ru_maxrss=ru_maxrss,
        stays=stays,
        largest=largest,
        beyond=extra,
        ratio=extra / largest,
    )
    sys.exit(extra > MAX_OVERHEAD * largest)


def random_batch(vocab_size: int) -> Any:
    """Rows of random tokens, all but the first of each trained."""
    import numpy as np

    from agentrl_jax.learner.packing import Batch

    shape = (ROWS, LENGTH)
    action_mask = np.broadcast_to(np.arange(LENGTH) > 0, shape)
    return Batch(
        tokens=np.random.default_rng(1).integers(0, vocab_size, shape, np.int32),
        segment_ids=np.ones(shape, np.int32),
        positions=np.broadcast_to(np.arange(LENGTH, dtype=np.int32), shape),
        turns=action_mask.astype(np.int32) - 1,
        action_mask=action_mask,
        sampler_logp=np.zeros(shape, np.float32),
        version=np.zeros(shape, np.int32),
        temperature=np.ones(shape, np.float32),
        weight=(action_mask / action_mask.sum()).astype(np.float32),
    )


def update(folder: Path, saved: Path) -> None:
    """Three optimizer steps over eight devices, then saving: seconds, losses, peak memory."""
    import jax
    import jax.numpy as jnp
    import optax

    from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningBatch
    from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
    from agentrl_jax.learner.learner import Learner, fetch_metrics
    from agentrl_jax.models import load

    # With fsdp=8 each of the eight gathers the whole embedding, 4 GB more; of bfloat16 weights
    # XLA's CPU compiler fails on the sums.
    mesh = make_mesh(MeshConfig(data=1, fsdp=4, tensor=2))
    policy, params = load(folder, mesh)
    learner = Learner(
        policy,
        optax.adam(1e-4, mu_dtype=jnp.bfloat16),
        lambda logp, entropy, batch: (-logp, {}),
        mesh,
    )
    state = learner.init(jax.random.key(0), params)
    del params
    batch = random_batch(policy.vocab_size)
    losses, seconds = [], []
    for _ in range(3):
        began = time.monotonic()
        state, metrics = learner.update(state, [BehaviorCloningBatch(batch=batch)])
        losses.append(round(fetch_metrics(metrics)["loss"], 3))
        seconds.append(round(time.monotonic() - began, 1))
    matrices = [x for x in jax.tree.leaves(state.params) if x.size > MB]
    split = {x.size // x.addressable_shards[0].data.size for x in matrices}
    report(
        "update",
        mesh="fsdp=4, tensor=2",
        seconds=seconds,
        losses=losses,
        parts_of_a_matrix=sorted(split),
        peak=memory("VmHWM"),
    )
    if not (
        math.isclose(losses[0], math.log(policy.vocab_size), rel_tol=0.2)
        and losses[-1] < losses[0] - 0.1
        and split == {8}
    ):
        sys.exit(
            "the loss did not fall from about log(vocabulary), or a matrix is not in 8 parts: "
            f"{losses}, {split}"
        )
    params = state.params
    del state
    save_and_reload(saved, policy, params)


def save_and_reload(folder: Path, policy: Any, params: Any) -> None:
    """Save to the folder, load onto one device, and compare every weight."""
    import jax
    import jax.numpy as jnp

    from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
    from agentrl_jax.models import load, save

    before, began = memory("VmRSS"), time.monotonic()
    save(folder, policy, params)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / MB
    report(
        "save", seconds=time.monotonic() - began, written=size, before=before, peak=memory("VmHWM")
    )
    reloaded_policy, reloaded = load(folder, make_mesh(MeshConfig(), jax.devices()[:1]))
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(reloaded), strict=True):
        if not bool(jnp.array_equal(jax.device_get(a), b)):
            sys.exit("the saved weights are not the trained ones")
    report("load what was saved", layers=reloaded_policy.config.layers, identical=True)


def sample_tokens() -> Any:
    import numpy as np

    return np.random.default_rng(2).integers(0, 151_936, (1, 48), np.int32)


def library_logits(folder: Path, out: Path) -> None:
    """Logits of one row, from float32 weights on one device."""
    import jax
    import numpy as np

    from agentrl_jax.models import load
    from agentrl_jax.policy import PolicyInputs

    policy, params = load(folder)
    inputs = PolicyInputs(
        tokens=sample_tokens(),
        positions=np.arange(48, dtype=np.int32)[None],
        segment_ids=np.ones((1, 48), np.int32),
    )
    np.save(
        out,
        jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs).hidden))(params),
    )


def compare(folder: Path, out: Path) -> None:
    """Compare our logits of that row with those of `transformers`."""
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        expected = net(torch.tensor(sample_tokens()).long()).logits.numpy()
    difference = float(np.abs(np.load(out) - expected).max())
    report(
        "compare with transformers",
        largest_logit=float(np.abs(expected).max()),
        largest_difference=difference,
    )
    sys.exit(difference > 2e-4 * max(1.0, float(np.abs(expected).max())))


def run_step(*arguments: Any) -> bool:
    """Run a step in a process of its own; whether it succeeded."""
    return subprocess.run([sys.executable, __file__, *map(str, arguments)]).returncode == 0


def main(folder: Path) -> int:
    """Run every step; the number of those that failed."""
    succeeded = [True if (folder / "config.json").exists() else run_step("make", folder)]
    succeeded += [
        run_step("load", folder, fsdp, dtype)
        for fsdp in (8, 1)
        for dtype in ("bfloat16", "float32")
    ]
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        saved, out = Path(temporary) / "saved", Path(temporary) / "logits.npy"
        succeeded.append(run_step("update", folder, saved))
        if importlib.util.find_spec("torch"):
            succeeded += [run_step("our_logits", saved, out), run_step("compare", saved, out)]
        else:
            report("compare with transformers", skipped="torch is not installed")
    return succeeded.count(False)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        step, folder, *remaining = sys.argv[1:]
        if step == "load":
            load(Path(folder), int(remaining[0]), remaining[1])
        else:
            {"make": make, "update": update, "our_logits": library_logits, "compare": compare}[
                step
            ](Path(folder), *map(Path, remaining))
        sys.exit(0)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="the folder of the model; none: a temporary one"
    )
    folder_flag = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(folder_flag.absolute() if folder_flag else Path(temporary) / "half_billion"))
