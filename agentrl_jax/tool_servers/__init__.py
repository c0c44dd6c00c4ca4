"""Tools and environments over the wire: MCP, VerlTool's tool server and AgentGym's HTTP verbs.

See docs/tool_servers.md.
"""
