"""Running Python code inside a sandbox: a program once, or the cells of a session.

This runs in the confined process. Whatever is said here to the host, the code that runs could say
too: the host believes none of it but what the code may decide.
"""

import ast
import atexit
import binascii
import builtins
import json
import linecache
import os
import random
import resource
import signal
import struct
import sys
import threading
import traceback
import types
from collections.abc import Mapping
from typing import Any

HEADER = struct.Struct("!I")  # the length of a request to a session
_OWN_FILE, _PACKAGE = __file__, __name__.partition(".")[0]


def warm_up() -> None:
    """Do once, before processes are forked, what each of them would do first.

    What is imported, opened and computed here costs them nothing, and neither they nor their code
    can import this package.
    """
    open_standard_streams()
    seed_generators(0)
    for code in ("x = 1", "1 / 0"):
        try:
            _run_cell(code, 0, {})
        except ZeroDivisionError as error:
            _exception_text(error)
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]


def write_files(files: Mapping[str, str]) -> None:
    """Write files of base64 by their paths, which lead into the working folder."""
    for path, text in files.items():
        folder = os.path.dirname(path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(path, "wb") as file:
            file.write(binascii.a2b_base64(text))


def seed_generators(seed: int) -> None:
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def open_standard_streams() -> None:
    """Python's streams on the descriptors 0 to 2, which another process gave."""
    sys.stdin = sys.__stdin__ = _text_stream(0, "r")
    sys.stdout = sys.__stdout__ = _text_stream(1, "w")
    sys.stderr = sys.__stderr__ = _text_stream(2, "w")


def _text_stream(descriptor: int, mode: str) -> Any:
    return open(
        descriptor,
        mode,
        buffering=1,
        encoding="utf-8",
        errors="replace" if mode == "r" else "backslashreplace",
        closefd=False,
    )


def fresh_main(path: str) -> dict[str, Any]:
    """The names of an empty module `__main__`."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [path]
    return module.__dict__


def run_program(code: str) -> None:
    """Run a program and end this process as Python would."""
    names = fresh_main("main.py")
    _show_in_tracebacks("main.py", code)
    status = _execute(lambda: exec(compile(code, "main.py", "exec", dont_inherit=True), names))
    try:
        threading._shutdown()  # waits for its threads  # type: ignore[attr-defined]
        _run_exit_functions()
    finally:
        _flush()
        os._exit(status)


def run_session(requests: int, replies: int) -> None:
    """Run cells, requested on one descriptor and answered on another, until it is closed."""
    names, count = fresh_main("session"), 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        size = HEADER.unpack(_read(requests, HEADER.size))[0]
        request = json.loads(_read(requests, size))
        count += 1
        _allow_cpu_seconds(request["cpu_seconds"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            status = _execute(lambda: _run_cell(request["code"], count, names))  # noqa: B023
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _flush()
        reply = {"nonce": request["nonce"], "status": status}
        # The code may have left part of a line there.
        os.write(replies, b"\n" + json.dumps(reply).encode() + b"\n")


def _run_cell(code: str, count: int, names: dict[str, Any]) -> None:
    """Run a cell; the value of an expression at its end is printed."""
    path = f"<cell {count}>"
    _show_in_tracebacks(path, code)
    tree = ast.parse(code, path)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, path, "exec", dont_inherit=True), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), path, "eval", dont_inherit=True), names)
        if value is not None:
            names["_"] = value
            print(repr(value))


def _execute(run: Any) -> int:
    """The exit status of some code; its exception is printed."""
    try:
        run()
    except SystemExit as error:
        return _exit_status(error.code)
    except BaseException as error:
        try:
            sys.stderr.write(_exception_text(error))
        except BaseException:  # its own methods raise
            os.write(2, f"{type(error).__name__}\n".encode(errors="replace"))
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _exception_text(error: BaseException) -> str:
    """A traceback without the frames of this module."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _OWN_FILE:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _show_in_tracebacks(path: str, code: str) -> None:
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)


def _allow_cpu_seconds(seconds: float) -> None:
    """Let this process use so many seconds more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _run_exit_functions() -> None:
    atexit._run_exitfuncs()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # closed, replaced, or its reader is gone
            continue


def _read(descriptor: int, size: int) -> bytes:
    """Exactly so many bytes; the process ends where there are no more."""
    data = b""
    while len(data) < size:
        chunk = os.read(descriptor, size - len(data))
        if not chunk:
            os._exit(0)
        data += chunk
    return data
