"""Parses command lines of one console script without running them.

    python parse_commands.py MODULE < lines.json

Prints a JSON list with the error of each line, "" where it is accepted: unknown flags, values of
the wrong type; configs, fields, environments, options and scripted policies that do not exist.
"""

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any, cast

import gymnasium
from absl import flags

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax.errors import UserError
from agentrl_jax.launch import bench, cli
from agentrl_jax.launch.dataclass_flags import parse_literals

CONFIG_COMMANDS = ("agentrl_jax.launch.train", "agentrl_jax.launch.sweep")


def check_values() -> None:
    """Of the flags that several commands share. Raises UserError or an error of Gymnasium."""
    values = flags.FLAGS.flag_values_dict()
    if flags.FLAGS.find_module_defining_flag("config") in CONFIG_COMMANDS:
        cli.experiment_from_flags()
    environments = values.get("environment") or ()
    for environment in [environments] if isinstance(environments, str) else environments:
        check_environment(environment, values)


def check_environment(environment: str, values: dict[str, Any]) -> None:
    """Make it with the options of the parsed flags; its scripted policies have theirs."""
    try:
        env = gymnasium.make(environment, **parse_literals(values.get("option", ())))
    except UserError as error:
        if "pip install" in str(error):  # an extra that is not installed here
            return
        raise
    player = values.get("player") or values.get("watch")
    policies = cast(Any, env.unwrapped).scripted_policies
    if player and player not in (*policies, "policy"):
        raise UserError(f"{environment} has no scripted policy {player!r}")


def parse_line(main: Callable[[], Any], argv: list[str]) -> str:
    """The error of one line, or ""."""
    errors: list[str] = []

    def parse_only(_: Callable[[], Any], argv: list[str] | None = None, doc: str = "") -> int:
        try:
            cli.parse(sys.argv if argv is None else argv)
            check_values()
        except (UserError, gymnasium.error.Error, TypeError) as error:
            errors.append(str(error))
        return 0

    defined, sys.argv, run = set(flags.FLAGS), argv, cli.run
    cli.run = parse_only
    try:
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            main()
    finally:
        cli.run = run
        for name in set(flags.FLAGS) - defined:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
        for name in defined:
            flags.FLAGS[name].unparse()
    return "; ".join(errors)


def check_line(module: Any, argv: list[str]) -> str:
    if module is bench and argv[1:2] and argv[1] not in bench.MODULES:
        return f"there is no benchmark {argv[1]!r}"
    return parse_line(module.main, argv)


if __name__ == "__main__":
    module = importlib.import_module(sys.argv[1])
    print(json.dumps([check_line(module, line) for line in json.load(sys.stdin)]))
