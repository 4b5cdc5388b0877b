"""A gateway: it keeps the threads, and other AG-UI servers run the agents. They may lose everything; the conversation goes on.

Start a runner with `ambient serve demo --port 9000 --store memory://`, then run this from the same directory with
`uvicorn gateway:create --factory`. Without an app: `ambient serve front=http://127.0.0.1:9000/`.
"""

from fastapi import FastAPI

from ambient_runner import Run, Settings, add_ambient_endpoints
from ambient_runner.bridges.remote import RemoteBridge, RemoteTimeouts


def passed_on(run: Run) -> dict[str, str]:
    """Each user's own token goes to the runner, and nowhere else. The setting `pass_headers` must name `authorization`."""
    token = run.headers.get("authorization")
    if not token:
        return {}
    run.secrets.add([token, token.partition(" ")[2]])
    return {"Authorization": token}


def create(runner: str = "http://127.0.0.1:9000/", settings: Settings | None = None) -> FastAPI:
    """The app in front of this runner."""
    bridge = RemoteBridge(runner, headers=passed_on, timeout=RemoteTimeouts(connect=5, idle=120))
    app = FastAPI()
    add_ambient_endpoints(app, bridge=bridge, settings=settings)
    return app
