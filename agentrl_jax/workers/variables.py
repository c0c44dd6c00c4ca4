"""Which environment variables worker processes get: those that programs need to run, no secrets."""

from collections.abc import Collection, Mapping

from agentrl_jax.errors import UserError

# Of the user, the locale, temporary files, libraries, certificates and displays.
NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR",
        "TEMP", "TMP", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SSL_CERT_FILE",
        "SSL_CERT_DIR", "DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY",
        "TF_CPP_MIN_LOG_LEVEL",
    }
)  # fmt: skip
# Of Python, the locale, numerical libraries and rendering.
PREFIXES = (
    "PYTHON",
    "LC_",
    "JAX_",
    "XLA_",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "MUJOCO_",
    "PYOPENGL_",
    "EGL_",
    "SDL_",
)


def worker_variables(
    variables: Mapping[str, str], pass_variables: Collection[str] = ()
) -> dict[str, str]:
    """The variables of a worker process.

    Args:
        variables: of this process.
        pass_variables: names that are passed too, where they are set.

    Raises:
        UserError: a name is empty or holds "=".
    """
    for name in pass_variables:
        if not name or "=" in name:
            raise UserError(
                f"config.environment.pass_variables holds names of variables, not {name!r}"
            )
    return {
        name: value
        for name, value in variables.items()
        if name in NAMES or name.startswith(PREFIXES) or name in pass_variables
    }
