"""The files of `examples/deploy`: the app with tokens that the tests sign, the proxy's site as nginx reads it, the settings."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import importlib.util
import json
import shutil
import subprocess
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from fastapi import FastAPI

from ambient_runner.config import read_settings
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, error_of, frames, run_body

DEPLOY = Path(__file__).parent.parent / "examples" / "deploy"
ISSUER = "https://login.example.com/"
VALID_SECONDS = 24 * 3600  # tokens are signed when the tests are collected, long before the last one runs
AUDIENCE = "https://agents.example.com"
ENVIRON = {"OIDC_ISSUER": ISSUER, "OIDC_AUDIENCE": AUDIENCE, "OIDC_JWKS_URL": "https://login.example.com/jwks.json"}
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGERS_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_example", DEPLOY / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def claims(sub: str = "alice", **changed: Any) -> dict[str, Any]:
    given = {"sub": sub, "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + VALID_SECONDS, **changed}
    return {name: value for name, value in given.items() if value is not None}


def sign(payload: dict[str, Any], *, key: Any = KEY, algorithm: str = "RS256", kid: str = "k1") -> str:
    return jwt.encode(payload, key, algorithm=algorithm, headers={"kid": kid})


def sign_with_the_public_key(payload: dict[str, Any]) -> str:
    """A token of algorithm HS256 whose password is the issuer's public key. PyJWT refuses to make one."""
    public = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT", "kid": "k1"}, payload)]
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = hmac.new(public, signed, hashlib.sha256).digest()
    return b".".join([signed, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


ALICE = bearer(sign(claims("alice")))
BOB = bearer(sign(claims("bob")))


def published(key: rsa.RSAPrivateKey, kid: str = "k1") -> dict[str, Any]:
    public: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {"keys": [{**public, "kid": kid, "use": "sig"}]}


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The example over the memory store, with the issuer's keys in place of a request for them."""
    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", lambda client: published(KEY))
    return load_example().create(ENVIRON, SETTINGS)


BAD_TOKENS = {
    "expired": bearer(sign(claims(exp=int(time.time()) - 120))),
    "of another issuer": bearer(sign(claims(iss="https://evil.test/"))),
    "for another audience": bearer(sign(claims(aud="https://other.example.com"))),
    "without an expiry": bearer(sign(claims(exp=None))),
    "without a subject": bearer(sign(claims(sub=None))),
    "with an empty subject": bearer(sign(claims(sub=""))),
    "signed by a stranger": bearer(sign(claims(), key=STRANGERS_KEY)),
    "signed with an unknown key": bearer(sign(claims(), key=STRANGERS_KEY, kid="k2")),
    "of another kind of key": bearer(sign(claims(), key=ec.generate_private_key(ec.SECP256R1()), algorithm="ES256")),
    "signed with the public key": bearer(sign_with_the_public_key(claims())),
    "unsigned": bearer(jwt.encode(claims(), None, algorithm="none", headers={"kid": "k1"})),
    "not a token": bearer("x.y.z"),
    "empty": {"Authorization": "Bearer "},
    "of another scheme": {"Authorization": f"Basic {sign(claims())}"},
    "absent": {},
}


@pytest.mark.parametrize("headers", BAD_TOKENS.values(), ids=BAD_TOKENS)
async def test_a_request_without_a_good_token_is_not_signed_in(app: FastAPI, headers: dict[str, str]) -> None:
    async with client_of(app) as client:
        with unless_hung():
            answers = [
                await client.post("/", json=run_body("say hi"), headers=headers),
                await client.get("/thread/list", headers=headers),
                await client.get("/metrics", headers=headers),
            ]
    assert [error_of(answer) for answer in answers] == [(401, "unauthorized")] * 3


async def test_users_share_no_thread_even_under_the_same_id(app: FastAPI) -> None:
    async with client_of(app) as client:
        with unless_hung():
            asked = await client.post("/", json=run_body("say hello"), headers=ALICE)
            strange = [
                await client.get("/threads/t/events?until=idle", headers=BOB),
                await client.get("/message_snapshot/t", headers=BOB),
                await client.post("/interrupt", json={"threadId": "t"}, headers=BOB),
                await client.delete("/thread/t", headers=BOB),
            ]
            await client.post("/", json=run_body("say bonjour"), headers=BOB)
            own = [(await client.get("/message_snapshot/t", headers=who)).json()["messages"] for who in (ALICE, BOB)]
    assert frames(asked)[-1][1]["type"] == "RUN_FINISHED"
    assert [error_of(answer) for answer in strange] == [(404, "unknown_thread")] * 4
    assert [[message["content"] for message in messages] for messages in own] == [
        ["say hello", "hello"],
        ["say bonjour", "bonjour"],
    ]


async def test_a_reader_resumes_with_a_newer_token_of_the_same_user(app: FastAPI) -> None:
    async with client_of(app) as client:
        with unless_hung():
            whole = frames(await client.post("/", json=run_body("count 5"), headers=ALICE))
            middle = next(at for at, (_, event) in enumerate(whole) if event.get("delta") == "2 ")
            newer = bearer(sign(claims("alice", exp=int(time.time()) + 600)))
            resume = {**newer, "Last-Event-ID": str(whole[middle][0])}
            rest = frames(await client.get("/threads/t/events?until=idle", headers=resume))
    assert [frame for frame in rest if frame[0]] == whole[middle + 1 :]


async def test_a_rotated_key_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [published(STRANGERS_KEY, "old"), published(KEY)]
    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", lambda client: keys.pop(0))
    async with client_of(load_example().create(ENVIRON, SETTINGS)) as client:
        with unless_hung():
            answer = await client.get("/thread/list", headers=ALICE)
    assert (answer.status_code, keys) == (200, [])


async def test_an_issuer_that_cannot_be_reached_is_not_the_users_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(client: jwt.PyJWKClient) -> None:
        raise jwt.PyJWKClientConnectionError("refused")

    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", fail)
    async with client_of(load_example().create(ENVIRON, SETTINGS)) as client:
        with unless_hung():
            answer = await client.get("/thread/list", headers=ALICE)
            health = await client.get("/health")
    assert (error_of(answer), health.status_code) == ((500, "internal_error"), 200)


async def test_a_token_opens_metrics_and_no_page_is_open_without_one(app: FastAPI) -> None:
    async with client_of(app) as client:
        with unless_hung():
            metrics = await client.get("/metrics", headers=ALICE)
            pages: list[httpx.Response] = [await client.get(path) for path in ("/docs", "/redoc", "/openapi.json")]
    assert "ambient_runs_total" in metrics.text
    assert [page.status_code for page in pages] == [404] * 3


def test_the_environment_file_has_what_the_app_needs_and_no_unknown_setting() -> None:
    lines = [line for line in (DEPLOY / "ambient.env").read_text().splitlines() if line and not line.startswith("#")]
    environ = dict(line.split("=", 1) for line in lines)
    settings = read_settings(environ=environ)
    assert set(ENVIRON) <= set(environ)
    assert settings.store == "sqlite:////var/lib/ambient/ambient.db"


@pytest.mark.skipif(shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin") is None, reason="nginx is missing")
def test_nginx_accepts_the_site(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    site = (DEPLOY / "nginx.conf").read_text().replace("/etc/ssl/ambient/", f"{tmp_path}/")
    # `nginx -t` opens the listeners: take ports that need no rights and that nobody else has.
    for line in ("listen 80;", "listen [::]:80;", "listen 443 ", "listen [::]:443 "):
        assert line in site
    for number, place in enumerate(("80;", "[::]:80;", "443 ", "[::]:443 ")):
        site = site.replace(f"listen {place}", f"listen unix:{tmp_path}/{number}{place[-1]}")
    (tmp_path / "site.conf").write_text(site)
    directories = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("fastcgi", "uwsgi", "scgi", "proxy"))
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; client_body_temp_path {tmp_path}/body;"
        f"{directories} include {tmp_path}/site.conf; }}"
    )
    nginx = str(shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin"))
    done = subprocess.run([nginx, "-t", "-c", str(tmp_path / "nginx.conf")], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def write_certificate(directory: Path) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agents.example.com")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (directory / "fullchain.pem").write_bytes(certificate.public_bytes(encoding))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "privkey.pem").write_bytes(KEY.private_bytes(encoding, *plain))


@pytest.mark.parametrize("environ", [{}, {**ENVIRON, "OIDC_AUDIENCE": ""}])
def test_the_app_names_the_variables_that_are_missing(environ: dict[str, str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        load_example().create(environ, SETTINGS)
    message = str(exit_info.value.code)
    assert [name for name in ENVIRON if name in message] == [name for name in ENVIRON if not environ.get(name)]
