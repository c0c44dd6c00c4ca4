"""A small server of OpenEnv's websocket messages, in the forms that the package defines."""

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from typing import Any


class GuessGame:
    """A number of 0 to 9 to guess in five turns; "?" is an action that is invalid, "!" fails."""

    def reset(self, seed: int | None = None, low: int = 0) -> dict[str, Any]:
        self.number, self.turns = random.Random(seed).randint(low, 9), 0
        return {"observation": {"hint": f"from {low}", "turns": 0}, "reward": None, "done": False}

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        guess = action["message"]
        if guess == "!":
            raise RuntimeError("the game is broken")
        self.turns += 1
        is_right = guess == str(self.number)
        hint = "right" if is_right else "more" if guess < str(self.number) else "less"
        observation = {"hint": hint, "turns": self.turns}
        is_done = is_right or self.turns == 5
        return {"observation": observation, "reward": float(is_right), "done": is_done}


def error(code: str, message: str, **fields: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **fields}}


def answer(game: GuessGame, text: str) -> dict[str, Any] | None:
    """The answer to a message; None: the connection is closed."""
    request = json.loads(text)
    kind, data = request.get("type"), request.get("data", {})
    if kind == "close":
        return None
    if kind == "reset":
        known = {name: data[name] for name in ("seed", "low") if name in data}
        return {"type": "observation", "data": game.reset(**known)}
    if kind != "step":
        return error("UNKNOWN_TYPE", f"Unknown message type: {kind}")
    if set(data) != {"message"} or data["message"] == "?":
        return error("VALIDATION_ERROR", "Invalid message", errors=[{"loc": ["message"]}])
    try:
        return {"type": "observation", "data": game.step(data)}
    except RuntimeError as failure:
        return error("EXECUTION_ERROR", str(failure))


@contextlib.contextmanager
def openenv_server(odd_answer: str | None = None, key: str = "") -> Iterator[str]:
    """The address of a server on loopback.

    Args:
        odd_answer: what it answers whatever is asked; "late" and "gone" wait and hang up.
        key: the bearer token that it requires.
    """
    from websockets.sync.server import serve  # type: ignore[import-not-found]

    stopped = threading.Event()

    def handle(connection: Any) -> None:
        game = GuessGame()
        for text in connection:
            if odd_answer == "gone":
                return
            if odd_answer == "late":
                stopped.wait(10)
                return
            if odd_answer is not None:
                connection.send(odd_answer)
                continue
            reply = answer(game, text)
            if reply is None:
                return
            connection.send(json.dumps(reply))

    def check(connection: Any, request: Any) -> Any:
        if key and request.headers.get("Authorization") != f"Bearer {key}":
            return connection.respond(401, "wrong key")
        return None if request.path == "/ws" else connection.respond(404, "not here")

    with serve(handle, "127.0.0.1", 0, process_request=check) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            stopped.set()
            server.shutdown()
            thread.join()
