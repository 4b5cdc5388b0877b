"""A gateway that stores the threads while another AG-UI server runs the agent.

If the other server loses its data, conversations continue: the gateway sends the whole history with every run.
Start an agent server with `ambient serve demo --port 9000 --store memory://`, then run this file from its directory:
`uvicorn gateway:create --factory`. Without an app: `ambient serve front=http://127.0.0.1:9000/`.
"""

from anyio import to_thread
from fastapi import FastAPI

from ambient_runner import Run, Settings, add_ambient_endpoints
from ambient_runner.bridges.remote import RemoteBridge, RemoteTimeouts


async def forward_authorization(run: Run) -> dict[str, str]:
    """Return the user's own Authorization header for the agent server. The setting `pass_headers` must list `authorization`."""
    token = run.headers.get("authorization")
    if not token:
        return {}
    # Redacts the token from everything that is stored, logged or sent to clients. In a thread: a client chooses how long it is.
    await to_thread.run_sync(run.secrets.add, [token, token.partition(" ")[2]])
    return {"Authorization": token}


def create(agent_url: str = "http://127.0.0.1:9000/", settings: Settings | None = None) -> FastAPI:
    """Create the gateway for the agent at this URL."""
    bridge = RemoteBridge(agent_url, headers=forward_authorization, timeout=RemoteTimeouts(connect=5, idle=120))
    app = FastAPI()
    add_ambient_endpoints(app, bridge=bridge, settings=settings)
    return app
