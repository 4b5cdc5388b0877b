"""The code samples of the public bridge contract, word for word."""

from __future__ import annotations

CLAUDE_APP = """
from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.claude import ClaudeBridge

app = FastAPI()
add_ambient_endpoints(app, bridge=ClaudeBridge())
"""

MY_BRIDGE = """
from ambient_runner import add_ambient_endpoints, PlatformBridge, PlatformContext, FrameworkCapabilities

class MyBridge(PlatformBridge):
    def capabilities(self):
        return FrameworkCapabilities(file_system=False, mcp=False)

    def create_adapter(self, ctx):
        return MyAdapter(model=ctx.model, prompt=ctx.system_prompt_append)

app = FastAPI()
add_ambient_endpoints(app, bridge=MyBridge())
"""

CLAUDE_BRIDGE = """
class ClaudeBridge(PlatformBridge):
    def capabilities(self):
        return FrameworkCapabilities(
            file_system=True, mcp=True,
            session_persistence=True, thinking=True,
        )

    def create_adapter(self, ctx):
        return ClaudeAgentAdapter(name="session", options={
            "cwd": ctx.cwd_path,
            "model": ctx.model,
            "mcp_servers": ctx.mcp_servers,    # native MCP
            "system_prompt": {"type": "preset", "preset": "claude_code", "append": ctx.system_prompt_append},
            "permission_mode": "acceptEdits",
            "continue_conversation": ctx.is_continuation,
        })
"""

LANGGRAPH_BRIDGE = """
class LangGraphBridge(PlatformBridge):
    def __init__(self, graph):
        self.graph = graph

    def capabilities(self):
        return FrameworkCapabilities(
            file_system=False, mcp=False,
            session_persistence=True,
        )

    def create_adapter(self, ctx):
        return LangGraphAgent(name="session", graph=self.graph)
"""
