"""Write a dataset of scripted episodes, and print its statistics and the published ones.

agentrl-data --task=wordle --out=data/wordle
agentrl-data --task=maze_fo --records=500 --player=expert --out=data/maze
agentrl-data --environment=agentrl/Prover-v0 --records=1000 --out=data/prover

The first writes 1,000,000 training and 10,000 validation episodes, the second sets the size and the
scripted policy, the third takes any environment that has scripted policies.
"""

import sys

from agentrl_jax.launch import cli, dataclass_flags


def main() -> None:
    from agentrl_jax.launch.datasets import DataSet

    dataclass_flags.define_flags(DataSet)
    sys.exit(cli.run(lambda: print(dataclass_flags.from_flags(DataSet).run()), doc=__doc__))


if __name__ == "__main__":
    main()
