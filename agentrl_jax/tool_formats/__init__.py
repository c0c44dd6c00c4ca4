"""How models write tool calls, one class a way; docs/tools.md has the table."""

from agentrl_jax.tool_formats.json_calls import HermesToolFormat, LlamaToolFormat
from agentrl_jax.tool_formats.line_calls import BracketToolFormat, FencedCodeToolFormat
from agentrl_jax.tool_formats.python_calls import PythonListToolFormat
from agentrl_jax.tool_formats.tag_calls import FunctionTagToolFormat, TagToolFormat
from agentrl_jax.tool_formats.tool_format import ParsedCalls, ToolFormat
from agentrl_jax.tool_formats.ui_tars import UITarsToolFormat

__all__ = [
    "BracketToolFormat",
    "FencedCodeToolFormat",
    "FunctionTagToolFormat",
    "HermesToolFormat",
    "LlamaToolFormat",
    "ParsedCalls",
    "PythonListToolFormat",
    "TagToolFormat",
    "ToolFormat",
    "UITarsToolFormat",
]
