"""Bridge to an agent on another AG-UI server: `RemoteBridge(url)`. This server stores the threads, the other one runs the agent.

`bridge.py` creates the adapters, `adapter.py` runs one thread, `client.py` is the HTTP client. `translate.py` converts the other server's
events to those that this one stores, and its MESSAGES_SNAPSHOT to a correction of the history (`projections/history.py`); it is pure.
"""

from ambient_runner.bridges.remote.bridge import RemoteBridge
from ambient_runner.bridges.remote.config import RemoteLimits, RemoteTimeouts

__all__ = ["RemoteBridge", "RemoteLimits", "RemoteTimeouts"]
