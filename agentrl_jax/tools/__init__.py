"""Tools: functions that a policy may call, their schemas and their limits."""

from agentrl_jax.tools.tool import Tool, ToolOutput, tool

__all__ = ["Tool", "ToolOutput", "tool"]
