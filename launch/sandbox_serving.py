"""`SandboxServer`: a sandbox of this machine behind SandboxFusion's `/run_code`."""

import base64
import binascii
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.http_server import (
    JSONResponse,
    Request,
    Response,
    Route,
    Starlette,
    check_key,
    json_body,
    make_app,
    serve_app,
    with_error_responses,
)
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import Sandbox
from agentrl_jax.sandbox.snippet import BASH, PYTHON, Outcome, Snippet

LANGUAGES = {language.name: language for language in (PYTHON, BASH)}


class SandboxServer:
    """The routes `/run_code` and `/health`.

    A request may lower the sandbox's limits of time and memory, not raise them.
    """

    def __init__(self, sandbox: Sandbox, api_key: str, limits: ServerLimits) -> None:
        """`api_key`: that clients must send; empty: none."""
        self._sandbox, self._key, self._limits = sandbox, api_key.encode(), limits.check()

    def app(self) -> Starlette:
        return make_app(
            [
                Route("/run_code", with_error_responses(self._run_code), methods=["POST"]),
                Route("/health", with_error_responses(self._health), methods=["GET"]),
            ]
        )

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "sandbox": self._sandbox.description})

    async def _run_code(self, request: Request) -> Response:
        check_key(request, self._key)
        fields = await json_body(request, self._limits)
        snippet, limits = parse_request(fields, self._sandbox.limits)
        try:
            outcome = await self._sandbox.run_async(snippet, limits)
        except UserError as error:
            raise APIError(str(error)) from error
        except EnvironmentFailure as failure:
            return JSONResponse(_response("SandboxError", str(failure), None))
        status = "Success" if outcome.succeeded else "Failed"
        return JSONResponse(_response(status, "", _result(outcome)))


def parse_request(fields: Any, limits: SandboxLimits) -> tuple[Snippet, SandboxLimits]:
    """A request's snippet and limits. Raises APIError where a field is missing or wrong."""
    if not isinstance(fields, dict) or not isinstance(fields.get("code"), str):
        raise APIError('a request is {"code": "...", "language": "python"}')
    language = LANGUAGES.get(str(fields.get("language", "python")))
    if language is None:
        raise APIError(f"the languages here are {', '.join(LANGUAGES)}")
    files = fields.get("files") or {}
    seconds, memory = fields.get("run_timeout"), fields.get("memory_limit_MB")
    try:
        contents = {
            str(path): base64.b64decode(text, validate=True)
            for path, text in files.items()
            if text is not None
        }
        limits = replace(
            limits,
            subprocesses=limits.subprocesses or bool(language.command),
            seconds=min(limits.seconds, float(seconds)) if seconds else limits.seconds,
            memory_mb=min(limits.memory_mb, int(memory))
            if memory and memory > 0
            else limits.memory_mb,
        )
        stdin = str(fields.get("stdin") or "")
    except (TypeError, ValueError, AttributeError, binascii.Error, UserError) as error:
        raise APIError(f"a field of the request is wrong: {error}") from error
    return Snippet(fields["code"], stdin, language, contents), limits


def _result(outcome: Outcome) -> dict[str, Any]:
    code = outcome.exit_code if outcome.signal is None else -outcome.signal
    is_late = outcome.limit in ("time", "cpu")
    return {
        "status": "TimeLimitExceeded" if is_late else "Finished",
        "execution_time": outcome.seconds,
        "return_code": None if is_late else code,
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
    }


def _response(status: str, message: str, result: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "status": status,
        "message": message,
        "compile_result": None,
        "run_result": result,
        "executor_pod_name": None,
        "files": {},
    }


def serve_sandbox(
    sandbox: Sandbox, host: str, port: int, api_key: str, limits: ServerLimits
) -> AbstractAsyncContextManager[str]:
    """Serve while the block runs; yields the address.

    Raises:
        UserError: the port is taken.
    """
    app = SandboxServer(sandbox, api_key, limits).app()
    return serve_app(app, host, port, "the sandbox", limits)
