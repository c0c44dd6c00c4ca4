"""A server of MCP as anybody would write it with the SDK: a shop's tools, some of which misbehave.

    python tests/support/mcp_shop.py [--port=8000] [--token=SECRET]

Over stdio without a port.
"""

import argparse
import asyncio
import os
import sys
import threading
import time
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import TextContent

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d4944415478da63fcffff3f030005fe02fea72d0f4b0000000049454e44ae426082"
)
shop = MCPServer("shop")
visits = 0


@shop.tool()
def price(item: str, count: int = 1) -> int:
    """Tell the price of so many of an item."""
    if item not in ("fig", "nut"):
        raise ToolError(f"there is no {item}")
    return {"fig": 3, "nut": 5}[item] * count


@shop.tool()
def visit() -> str:
    """Count the visits."""
    global visits
    visits += 1
    return f"visit {visits}"


@shop.tool(structured_output=False)
def photo() -> list[Any]:
    """Show the shop."""
    return [TextContent(type="text", text="the shop"), Image(data=PIXEL, format="png")]


@shop.tool(name="stock.list")
def stock_list() -> dict[str, int]:
    """Tell the stock."""
    return {"fig": 7}


@shop.tool()
async def wait(seconds: float) -> str:
    """Wait, while the server answers others."""
    await asyncio.sleep(seconds)
    return "waited"


@shop.tool()
async def block(seconds: float) -> str:
    """Keep the server busy."""
    time.sleep(seconds)
    return "done"


@shop.tool()
def quit(status: int) -> str:
    """End the server."""
    print("the shop has burnt down", file=sys.stderr, flush=True)
    os._exit(status)


@shop.tool()
def close_in(seconds: float) -> str:
    """End the server later."""
    threading.Timer(seconds, os._exit, (6,)).start()
    return "soon"


@shop.tool()
def flood(size: int) -> str:
    """Say very much."""
    return "x" * size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default="")
    arguments = parser.parse_args()
    if not arguments.port:
        shop.run()
        return
    import uvicorn

    app = shop.streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        """The application for those who send the token."""
        sent = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and arguments.token and sent != f"Bearer {arguments.token}":
            headers = [(b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    uvicorn.run(guarded, host="127.0.0.1", port=arguments.port, log_level="critical")


if __name__ == "__main__":
    main()
