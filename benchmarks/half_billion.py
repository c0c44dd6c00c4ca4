"""Load, train, save and load again a decoder of half a billion parameters, on eight devices that are all this machine's CPU.

    python benchmarks/half_billion.py [--folder=DIR]

Writes a folder with random bfloat16 weights of the shape of Qwen2.5-0.5B (1 GB in three files; kept in DIR, and made only
where it is not there), then measures each step in a process of its own. One JSON line a step, sizes in MB:

    {"step": "load", "mesh": "fsdp=8", "seconds": ..., "peak": ..., "stays": ..., "largest": ..., "ratio": ...}

`ratio` is what loading took beyond what it left, (peak - before - stays) / largest tensor; the benchmark fails above 1.2, where
a loss does not fall, and where the logits of what was saved are not those of `transformers` (if torch is there).
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

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
MB = 10**6
ALLOWED = 1.2  # largest tensors that loading may hold beside what stays
ROWS, LENGTH = 8, 64


def memory(name: str) -> float:
    """A line of this process's status, `VmRSS` or `VmHWM`, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith(name))


def report(step: str, **numbers: Any) -> None:
    rounded = {name: float(f"{x:.4g}") if isinstance(x, float) else x for name, x in numbers.items()}
    print(json.dumps({"step": step, **rounded}), flush=True)


def bytes_of(tree: Any) -> list[int]:
    """Of each array, once: the same on every mesh that splits it."""
    import jax

    return [x.nbytes for x in jax.tree.leaves(tree)]


def make(folder: Path) -> None:
    """Write the folder: normal weights, norms and biases that are not neutral."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from agentrl_jax.models.decoder import DecoderConfig
    from agentrl_jax.models.families import json_of, layouts
    from agentrl_jax.models.rope import Rope
    from agentrl_jax.models.weights import save_tensors, stored

    config = DecoderConfig(
        layers=24, width=896, hidden=4864, heads=14, kv_heads=2, head_size=64, rope=Rope(1e6), qkv_bias=True, tied_head=True,
        param_dtype="bfloat16",
    )  # fmt: skip
    policy, random, began = config.build(151_936), np.random.default_rng(0), time.monotonic()

    def weights(path: Any, x: Any) -> jax.Array:
        name = jax.tree_util.keystr(path)
        mean, spread = (1.0, 0.1) if "norm" in name else (0.0, 0.02)
        return jnp.asarray(mean + spread * random.standard_normal(x.shape, np.float32), jnp.bfloat16)

    params = jax.tree_util.tree_map_with_path(weights, jax.eval_shape(policy.init, jax.random.key(0)))
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder, stored(layouts(config), params), limit=450 * MB)
    data = json_of(config, policy.vocab_size) | {"dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(data, indent=2) + "\n")  # last: a folder with it is whole
    report(
        "make", seconds=time.monotonic() - began, parameters=sum(x.size for x in jax.tree.leaves(params)), stays=sum(bytes_of(params)) / MB
    )


def load(folder: Path, fsdp: int, dtype: str) -> None:
    """Time and peak memory of loading onto `fsdp` devices."""
    import jax

    from agentrl_jax.models import load
    from agentrl_jax.sharding import MeshConfig, make_mesh

    mesh = make_mesh(MeshConfig(fsdp=fsdp), jax.devices()[:fsdp])
    before, began = memory("VmRSS"), time.monotonic()
    _, params = load(folder, mesh, param_dtype=dtype)
    jax.block_until_ready(params)
    seconds, peak = time.monotonic() - began, memory("VmHWM")
    ru_maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    layers = [x.nbytes // (x.shape[0] if "layers" in jax.tree_util.keystr(path) else 1) for path, x in jax.tree.leaves_with_path(params)]
    stays, largest = sum(bytes_of(params)) / MB, max(layers) / MB
    extra = peak - before - stays
    report(
        "load", mesh=f"fsdp={fsdp}", dtype=dtype, seconds=seconds, before=before, peak=peak, ru_maxrss=ru_maxrss, stays=stays,
        largest=largest, beyond=extra, ratio=extra / largest,
    )  # fmt: skip
    sys.exit(extra > ALLOWED * largest)


def update(folder: Path, saved: Path) -> None:
    """Three optimizer steps over eight devices, then saving: seconds, losses, peak memory."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    from agentrl_jax.algorithms.supervised import SupervisedBatch
    from agentrl_jax.batch import Batch
    from agentrl_jax.learner import Learner, fetch_metrics
    from agentrl_jax.models import load, save
    from agentrl_jax.sharding import MeshConfig, make_mesh

    # With fsdp=8 each of the eight gathers the whole embedding, 4 GB more; of bfloat16 weights XLA's CPU compiler fails on the sums.
    mesh, random = make_mesh(MeshConfig(data=1, fsdp=4, tensor=2)), np.random.default_rng(1)
    policy, params = load(folder, mesh)
    learner = Learner(policy, optax.adam(1e-4, mu_dtype=jnp.bfloat16), lambda logp, entropy, batch: (-logp, {}), mesh)
    state = learner.init(jax.random.key(0), params)
    del params
    shape = (ROWS, LENGTH)
    acts = np.broadcast_to(np.arange(LENGTH) > 0, shape)
    batch = Batch(
        tokens=random.integers(0, policy.vocab_size, shape, np.int32), segment_ids=np.ones(shape, np.int32),
        positions=np.broadcast_to(np.arange(LENGTH, dtype=np.int32), shape), turns=acts.astype(np.int32) - 1, action_mask=acts,
        sampler_logp=np.zeros(shape, np.float32), version=np.zeros(shape, np.int32), temperature=np.ones(shape, np.float32),
        weight=(acts / acts.sum()).astype(np.float32),
    )  # fmt: skip
    losses, seconds = [], []
    for _ in range(3):
        began = time.monotonic()
        state, metrics = learner.update(state, [SupervisedBatch(batch=batch)])
        losses.append(round(fetch_metrics(metrics)["loss"], 3))
        seconds.append(round(time.monotonic() - began, 1))
    matrices = [x for x in jax.tree.leaves(state.params) if x.size > MB]
    split = {x.size // x.addressable_shards[0].data.size for x in matrices}
    report("update", mesh="fsdp=4, tensor=2", seconds=seconds, losses=losses, parts_of_a_matrix=sorted(split), peak=memory("VmHWM"))
    if not (math.isclose(losses[0], math.log(policy.vocab_size), rel_tol=0.2) and losses[-1] < losses[0] - 0.1 and split == {8}):
        sys.exit(f"the loss did not fall from about log(vocabulary), or a matrix is not in 8 parts: {losses}, {split}")
    params = state.params
    del state
    before, began = memory("VmRSS"), time.monotonic()
    save(saved, policy, params)
    size = sum(path.stat().st_size for path in saved.glob("*.safetensors")) / MB
    report("save", seconds=time.monotonic() - began, written=size, before=before, peak=memory("VmHWM"))
    one, again = load(saved, make_mesh(MeshConfig(), jax.devices()[:1]))
    for mine, its in zip(jax.tree.leaves(params), jax.tree.leaves(again), strict=True):
        if not bool(jnp.array_equal(jax.device_get(mine), its)):
            sys.exit("what was saved is not what was trained")
    report("load what was saved", layers=one.config.layers, identical=True)


def row() -> Any:
    import numpy as np

    return np.random.default_rng(2).integers(0, 151_936, (1, 48), np.int32)


def our_logits(folder: Path, out: Path) -> None:
    """Of one row, from float32 weights on one device."""
    import jax
    import numpy as np

    from agentrl_jax.models import load
    from agentrl_jax.policy import Inputs

    policy, params = load(folder)
    inputs = Inputs(tokens=row(), positions=np.arange(48, dtype=np.int32)[None], segment_ids=np.ones((1, 48), np.int32))
    np.save(out, jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs).hidden))(params))


def compare(folder: Path, out: Path) -> None:
    """Our logits of that row with those of `transformers`."""
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        want = net(torch.tensor(row()).long()).logits.numpy()
    difference = float(np.abs(np.load(out) - want).max())
    report("compare with transformers", largest_logit=float(np.abs(want).max()), largest_difference=difference)
    sys.exit(difference > 2e-4 * max(1.0, float(np.abs(want).max())))


def run(*arguments: Any) -> bool:
    """A step in a process of its own; whether it succeeded."""
    return subprocess.run([sys.executable, __file__, *map(str, arguments)]).returncode == 0


def main(folder: Path) -> int:
    """Every step; the number of those that failed."""
    fine = [True if (folder / "config.json").exists() else run("make", folder)]
    fine += [run("load", folder, fsdp, dtype) for fsdp in (8, 1) for dtype in ("bfloat16", "float32")]
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        saved, out = Path(place) / "saved", Path(place) / "logits.npy"
        fine.append(run("update", folder, saved))
        if importlib.util.find_spec("torch"):
            fine += [run("our_logits", saved, out), run("compare", saved, out)]
        else:
            report("compare with transformers", skipped="there is no torch")
    return fine.count(False)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        step, folder, *rest = sys.argv[1:]
        if step == "load":
            load(Path(folder), int(rest[0]), rest[1])
        else:
            {"make": make, "update": update, "our_logits": our_logits, "compare": compare}[step](Path(folder), *map(Path, rest))
        sys.exit(0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the model is kept; none: a temporary folder")
    given = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(given.absolute() if given else Path(temporary) / "half_billion"))
