"""ScienceWorld's simulator: one Java process for the environments of a process."""

import functools
import os
import shutil
import subprocess
from typing import Any

from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.errors import EnvironmentFailure, UserError

SPLITS = ("train", "dev", "test")
# Sets of objects iterate by their hash codes, which Java draws anew for each object: with one code
# for all of them what is described has the same order in every episode.
_JAVA_OPTIONS = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")


def task_names() -> tuple[str, ...]:
    """The package's 30 tasks. Raises UserError where the package or Java is missing."""
    constants = import_package("scienceworld.constants", "scienceworld")
    if shutil.which("java") is None:
        raise UserError(
            "ScienceWorld needs the program java, 8 or later: apt-get install "
            "openjdk-17-jre-headless, or any other, does it"
        )
    return tuple(constants.ID2TASK.values())


def new_simulator() -> Any:
    """A simulator of its own in the Java process of this process, which is started if need be.

    Raises:
        EnvironmentFailure: Java does not start.
    """
    try:
        return _gateway(os.getpid()).jvm.scienceworld.runtime.pythonapi.PythonInterface()
    except (OSError, java_errors()) as error:
        _gateway.cache_clear()
        raise EnvironmentFailure(f"ScienceWorld's Java has no simulator: {error}") from error


def java_errors() -> type[Exception]:
    """What a call of the simulator raises."""
    return import_package("py4j.protocol", "scienceworld").Py4JError


@functools.lru_cache(maxsize=1)
def _gateway(process_id: int) -> Any:
    """The connection to the Java process, which ends when this one does.

    Args:
        process_id: of this process; a fork of it starts a Java process of its own.
    """
    constants = import_package("scienceworld.constants", "scienceworld")
    java = import_package("py4j.java_gateway", "scienceworld")
    port, process = java.launch_gateway(
        classpath=constants.JAR_PATH,
        cwd=constants.BASEPATH,
        javaopts=list(_JAVA_OPTIONS),
        die_on_exit=True,
        return_proc=True,
        redirect_stderr=subprocess.DEVNULL,
    )
    parameters = java.GatewayParameters(auto_field=True, port=port)
    return java.JavaGateway(gateway_parameters=parameters, java_process=process)


@functools.lru_cache(maxsize=1024)
def variations(task: str, split: str) -> tuple[int, ...]:
    """The package's variations of a task in a split."""
    simulator = new_simulator()
    simulator.load(task, 0, "", False)
    return tuple(getattr(simulator, f"getVariations{split.capitalize()}")())


@functools.lru_cache(maxsize=4096)
def gold_path(task: str, variation: int, simplifications: str) -> tuple[str, ...]:
    """The package's actions that accomplish a task."""
    simulator = new_simulator()
    simulator.load(task, variation, simplifications, True)
    return tuple(simulator.getGoldActionSequence())
