"""The MCP server: a memory as tools, resources and prompts for any agent."""
