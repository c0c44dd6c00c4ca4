"""Write a data set of scripted play, shard by shard, and print its statistics beside the published ones.

agentrl-data --task=wordle --out=data/wordle                                        1,000,000 games and 10,000 more to validate
agentrl-data --task=maze_fo --records=500 --player=expert --out=data/maze           another size, another player
agentrl-data --environment=agentrl/Prover-v0 --records=1000 --out=data/prover       any environment with scripted players
"""

import sys

from agentrl_jax.launch import command, options


def main() -> None:
    from agentrl_jax.launch.sets import DataSet

    options.declare(DataSet)
    sys.exit(command.run(lambda: print(options.read(DataSet).run()), doc=__doc__))


if __name__ == "__main__":
    main()
