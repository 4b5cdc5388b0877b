"""An app for many users: every request carries an OIDC access token, and every user has their own threads.

    OIDC_ISSUER=https://login.example.com/ OIDC_AUDIENCE=ambient OIDC_JWKS_URL=https://login.example.com/jwks.json \
        uvicorn app:create --factory --port 8001

Put a TLS proxy in front of it (`nginx.conf`) and keep it running with systemd (`ambient@.service`). `docs/how-to/deploy.md` explains both.
Needs `pip install 'pyjwt[crypto]'`.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import jwt
from fastapi import FastAPI, Request

from ambient_runner import Actor, Settings, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge

ALGORITHMS = ["RS256", "ES256"]
"""Never take these from the token. No HS256: with it, the public key would be the password."""
VARIABLES = ("OIDC_ISSUER", "OIDC_AUDIENCE", "OIDC_JWKS_URL")
REQUIRED_CLAIMS = ["exp", "iss", "aud", "sub"]
CLOCK_SKEW = 30  # seconds
JWKS_TIMEOUT = 5.0  # seconds
JWKS_THREADS = 8


class TokenVerifier:
    """Checks access tokens of one issuer against its published keys (JWKS)."""

    def __init__(self, *, issuer: str, audience: str, jwks_url: str) -> None:
        self._issuer = issuer
        self._audience = audience
        # Caches the keys for five minutes. An unknown key id fetches them again, at most every 30 seconds.
        self._keys = jwt.PyJWKClient(jwks_url, timeout=JWKS_TIMEOUT)

    def verify(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a valid token, or None. Blocks while it fetches keys.

        Raises: PyJWKClientConnectionError when the issuer cannot be reached: that is not the user's fault, so not a 401.
        """
        try:
            return jwt.decode(
                token,
                self._keys.get_signing_key_from_jwt(token),
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=CLOCK_SKEW,
                options={"require": REQUIRED_CLAIMS},
            )
        except jwt.PyJWKClientConnectionError:
            raise
        except jwt.PyJWTError:
            return None


def authorize_with(verifier: TokenVerifier) -> Callable[[Request], Awaitable[Actor | None]]:
    """Return the `authorize=` function: the Actor of a request with a valid bearer token, None (401) for any other."""
    # A separate thread limiter: if the issuer is slow, only requests that need its keys wait.
    threads = anyio.CapacityLimiter(JWKS_THREADS)

    async def authorize(request: Request) -> Actor | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        claims = await anyio.to_thread.run_sync(verifier.verify, token.strip(), limiter=threads)
        return actor_of(claims) if claims else None

    return authorize


def actor_of(claims: Mapping[str, Any]) -> Actor | None:
    """Return the owner of this user's threads. `sub` never changes; an email address or a name can."""
    if not claims["sub"]:
        return None
    # With several organizations, take the tenant from a claim that your issuer sets: Actor(tenant=claims["org_id"], …).
    return Actor(owner=claims["sub"])


def create(environ: Mapping[str, str] = os.environ, settings: Settings | None = None) -> FastAPI:
    """Create the app. Without `settings`, they come from `AMBIENT_*` variables and `ambient.toml`. Exits if a variable is missing."""
    missing = [name for name in VARIABLES if not environ.get(name)]
    if missing:
        raise SystemExit(f"Set {', '.join(missing)}: the app checks the access tokens of this issuer.")
    issuer, audience, jwks_url = (environ[name] for name in VARIABLES)
    verifier = TokenVerifier(issuer=issuer, audience=audience, jwks_url=jwks_url)
    app = FastAPI(openapi_url=None)  # FastAPI's own pages would not ask for a token
    # Replace the demo with your agent's bridge.
    add_ambient_endpoints(app, DemoBridge(), settings=settings, authorize=authorize_with(verifier))
    return app
