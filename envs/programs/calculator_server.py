"""A server of MCP with one tool, over stdio: python -m agentrl_jax.envs.programs.calculator_server.

It is written with the SDK of MCP alone, as anybody's would be.
"""

from math import prod

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

MAX_CHARACTERS = 64
server = MCPServer("calculator", log_level="CRITICAL")


@server.tool()
def calculate(expression: str) -> str:
    """Add and multiply whole numbers, such as 2*3+4."""
    terms = [term.split("*") for term in expression.split("+")]
    if len(expression) > MAX_CHARACTERS or not all(
        factor.isascii() and factor.isdecimal() for term in terms for factor in term
    ):
        raise ToolError("an expression has whole numbers with + and * between them, no spaces")
    return str(sum(prod(map(int, term)) for term in terms))


if __name__ == "__main__":
    server.run()
