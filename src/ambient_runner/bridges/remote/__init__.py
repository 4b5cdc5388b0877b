"""Another AG-UI server behind this one: `RemoteBridge(url)`. This server keeps the threads, the other one runs the agent.

`bridge.py` is what the server makes adapters with, `adapter.py` runs one thread, `client.py` speaks HTTP. `translate.py` makes of what the
other server says what this one stores, and `history.py` compares its MESSAGES_SNAPSHOT with that; both are pure.
"""

from ambient_runner.bridges.remote.bridge import RemoteBridge
from ambient_runner.bridges.remote.config import RemoteLimits, RemoteTimeouts

__all__ = ["RemoteBridge", "RemoteLimits", "RemoteTimeouts"]
