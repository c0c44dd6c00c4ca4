"""One process of a group that trains the letters run on several meshes, one after the other.

python train_process.py runs.json --coordinator=... --processes=... --process_id=...

runs.json maps run folders to overrides of config fields, {"mesh.data": 2}.
"""

import json
import sys
from pathlib import Path

from absl import flags
from support import letters_config


def main() -> None:
    import agentrl_jax.launch.train  # noqa: F401  its flags
    from agentrl_jax.distributed.process_group import initialize
    from agentrl_jax.training import loop

    _, runs, *_ = flags.FLAGS(sys.argv)
    f = flags.FLAGS
    with initialize(f.coordinator, f.processes, f.process_id) as process_group:
        for run_dir, overrides in json.loads(Path(runs).read_text()).items():
            experiment = letters_config.get_config()
            for path, value in overrides.items():
                *parents, name = path.split(".")
                config = experiment
                for parent in parents:
                    config = getattr(config, parent)
                assert hasattr(config, name), path
                setattr(config, name, value)
            loop.train(experiment, Path(run_dir), process_group=process_group)


if __name__ == "__main__":
    main()
