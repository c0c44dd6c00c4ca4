"""Write a dataset of scripted episodes, or check and convert demonstrations and preferences.

agentrl-data --task=wordle --out=data/wordle
agentrl-data --task=maze_fo --records=500 --player=expert --out=data/maze
agentrl-data --environment=agentrl/Prover-v0 --records=1000 --out=data/prover
agentrl-data --check=chats.jsonl
agentrl-data --source=runs/wordle --export=wordle.jsonl
agentrl-data --source=runs/wordle --export=preferences.jsonl --pairs
agentrl-data --source=runs/wordle --export=tokens.parquet --table=tokens

The first writes 1,000,000 training and 10,000 validation episodes, the second sets the size and the
scripted policy, the third takes any environment that has scripted policies. The others are
described in docs/data_formats.md.
"""

import sys

from agentrl_jax.launch import cli, dataclass_flags


def main() -> None:
    from agentrl_jax.launch.data_files import DataFile
    from agentrl_jax.launch.datasets import DataSet

    dataclass_flags.define_flags(DataSet)
    dataclass_flags.define_flags(DataFile)

    def start() -> None:
        file = dataclass_flags.from_flags(DataFile)
        print((file if file.is_named else dataclass_flags.from_flags(DataSet)).run())

    sys.exit(cli.run(start, doc=__doc__))


if __name__ == "__main__":
    main()
