"""What every command shares: absl flags, and one clear sentence instead of a traceback."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from agentrl_jax.errors import UserError

if TYPE_CHECKING:
    from agentrl_jax.experiment import Experiment

INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended
UNREAD = 141  # and of one whose output nobody reads any more


def run(main: Callable[[], Any], argv: list[str] | None = None, doc: str | None = None) -> int:
    """Parse flags, call `main`, and say in one sentence what the user can mend. Returns the exit status.

    `doc` is what --help says before the flags; by default the docstring of main's module.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.set_verbosity(logging.ERROR)  # Orbax tells every step it takes
    try:
        parse(sys.argv if argv is None else argv, doc=(sys.modules[main.__module__].__doc__ if doc is None else doc) or "")
        main()
        sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who read along has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def parse(argv: list[str], known: flags.FlagValues = flags.FLAGS, doc: str = "") -> None:
    """Parse absl flags. Raises UserError where one is unknown, of the wrong type or names no config field."""
    if any(arg in ("--help", "-h", "-help", "--helpfull") for arg in argv):
        ours = [name for name in known.flags_by_module_dict() if name.startswith("agentrl_jax.") or name == sys.argv[0]]
        print(f"{doc}\nflags of {os.path.basename(argv[0])}:", *map(known.module_help, ours), sep="\n", flush=True)
        raise SystemExit(0)
    try:
        rest = known(argv)
    except Exception as error:
        raise UserError(_sentence(error)) from error
    if len(rest) > 1:
        raise UserError(f"{rest[1]!r} is no flag: flags are written --name=value (--help lists them)")


def experiment(known: flags.FlagValues = flags.FLAGS) -> "Experiment":
    """The parsed --config. Raises UserError where none was given or its file is not there."""
    from ml_collections import config_flags

    from agentrl_jax.experiment import Experiment

    if known.config is None:
        raise UserError("say what to train with --config=configs/wordle_grpo.py (see configs/ for more)")
    if not isinstance(known.config, Experiment):  # config_flags hands out an object whose every use raises
        raise UserError(f"there is no config file {config_flags.get_config_filename(known['config'])}: see the files in configs/")
    return known.config


def _sentence(error: Exception) -> str:
    """What absl and config_flags say, without their preambles and tracebacks."""
    text = str(error.args[0] if error.args else error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if text.startswith("Error whilst parsing config file"):
        return lines[-1].split("Error: ", 1)[-1]
    return f"{lines[0] if lines else type(error).__name__} (see --help, and the fields in the config file)"
