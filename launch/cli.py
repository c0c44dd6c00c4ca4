"""What every command shares: absl flags, and one clear sentence instead of a traceback."""

import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from agentrl_jax.errors import UserError

if TYPE_CHECKING:
    from agentrl_jax.training.config import Experiment

flags.disclaim_key_flags()  # flags that are defined here are listed with their command's own
INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended
BROKEN_PIPE = 141  # and of one whose reader closed the pipe


def run(main: Callable[[], Any], argv: list[str] | None = None, doc: str | None = None) -> int:
    """Parse flags, call `main`, print a `UserError` as one sentence. Returns the exit status.

    `doc` is the text of --help before the flags; by default the docstring of main's module.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.set_verbosity(logging.ERROR)  # Orbax logs every step of a save
    try:
        parse(
            sys.argv if argv is None else argv,
            doc=(sys.modules[main.__module__].__doc__ if doc is None else doc) or "",
        )
        _set_up_compiler()
        main()
        sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def parse(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS, doc: str = "") -> None:
    """Parse absl flags. Raises UserError for an unknown flag, value type or config field."""
    if any(arg in ("--help", "-h", "-help", "--helpfull") for arg in argv):
        ours = [
            name
            for name in flag_values.flags_by_module_dict()
            if name.startswith("agentrl_jax.") or name == sys.argv[0]
        ]
        print(
            f"{doc}\nflags of {os.path.basename(argv[0])}:",
            *map(flag_values.module_help, ours),
            sep="\n",
            flush=True,
        )
        raise SystemExit(0)
    try:
        remaining = flag_values(argv)
    except Exception as error:
        raise UserError(_error_sentence(error)) from error
    for name in flag_values:
        value = flag_values[name].value
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--{name}={value} is not finite: give a number")
    if len(remaining) > 1:
        raise UserError(
            f"{remaining[1]!r} is no flag: flags are written --name=value (--help lists them)"
        )


def define_run_flags(run_dir_help: str) -> None:
    """Define --run_dir, --phase, --agent, --checkpoint and --trust, for commands that read a run's
    weights.
    """
    define_phase_flags(run_dir_help)
    flags.DEFINE_enum(
        "checkpoint",
        None,
        ["best", "newest"],
        "Which checkpoint of the phase; by default the best if the phase's config says "
        "best.restore, else the newest.",
    )


def define_phase_flags(run_dir_help: str) -> None:
    """Define --run_dir, --phase, --agent and --trust."""
    flags.DEFINE_string("run_dir", "", run_dir_help)
    flags.DEFINE_string(
        "phase", None, "Which of its phases; by default the last that has a checkpoint."
    )
    flags.DEFINE_string("agent", None, "Which of its agents; by default the phase's first.")
    define_trust_flag()
    define_xla_flag()


def define_xla_flag() -> None:
    """Define --xla_flags, for commands that run programs; `run` sets them before JAX starts."""
    flags.DEFINE_string(
        "xla_flags",
        "default",
        "Of the compiler: default, those of agentrl_jax/compiler/xla_flags.py for the chip, where "
        "XLA_FLAGS and LIBTPU_INIT_ARGS do not set them; none; or flags in quotation marks.",
    )


def _set_up_compiler(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """What has to be set before JAX starts."""
    from agentrl_jax.compiler import host_allocator, xla_flags

    chip = xla_flags.detect_chip()
    if not chip:
        host_allocator.keep_freed_memory()
    if "xla_flags" in flag_values:
        chosen = xla_flags.set_flags(flag_values.xla_flags, chip)
        if chosen:
            print(chosen, file=sys.stderr)


def wants_best(flag_values: flags.FlagValues = flags.FLAGS) -> bool | None:
    """Whether --checkpoint names the best one; None: it was not given."""
    return None if flag_values.checkpoint is None else flag_values.checkpoint == "best"


def define_trust_flag() -> None:
    """Define --trust, for commands that read run folders."""
    flags.DEFINE_multi_string(
        "trust",
        [],
        "A module, program or server outside this package that the run's config may name; may be "
        "repeated.",
    )


def trust_named(names: Sequence[str]) -> None:
    """Trust what --trust names. Raises UserError where a name is empty."""
    from agentrl_jax.storage import trust

    for name in names:
        trust.trust(name)


def experiment_from_flags(flag_values: flags.FlagValues = flags.FLAGS) -> "Experiment":
    """The parsed --config. Raises UserError where the flag or its file is missing."""
    from ml_collections import config_flags

    from agentrl_jax.training.config import Experiment

    if flag_values.config is None:
        raise UserError(
            "give a config with --config=configs/wordle_grpo.py (see configs/ for more)"
        )
    # For a missing file config_flags returns an object that raises on first use.
    if not isinstance(flag_values.config, Experiment):
        path = config_flags.get_config_filename(flag_values["config"])
        raise UserError(
            f"get_config() of {path} must return an Experiment"
            if os.path.exists(path)
            else f"there is no config file {path}: see the files in configs/"
        )
    return flag_values.config


def _error_sentence(error: Exception) -> str:
    """The message of absl or config_flags, without preamble and traceback."""
    text = str(error.args[0] if error.args else error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Error whilst parsing config file" in text:
        return lines[-1].split("Error: ", 1)[-1]
    if isinstance(error, KeyError) and text.isidentifier():  # that a dict of the config lacks
        return f"the config has nothing called {text!r} there: see the names in the config file"
    return (
        f"{lines[0] if lines else type(error).__name__} (see --help, and the fields in the "
        "config file)"
    )
