"""The MCP server of ``ralphctl mcp``: the lines of stdio, the guarded set of tools, and what they answer."""
