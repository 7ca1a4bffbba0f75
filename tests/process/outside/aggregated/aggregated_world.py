"""The server over TLS with an API server that knows one user, for tests of who is served what."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from certificates import SERVER, Made, made
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from antrea.apis.meta import Status
from antrea.errors import Unavailable
from antrea.features.registry.api_resources import RESOURCES
from antrea.features.registry.openapi_names import definition_name
from antrea.outside.apiserver import openapi
from antrea.outside.apiserver.authentication import Authentication, Trust
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects, Question
from antrea.outside.apiserver.server import Server
from antrea.outside.listener.listener import Limits
from antrea.outside.tls.server_context import Certificate, load_pair, server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CP = "/apis/controlplane.antrea.io/v1beta2"
SERVING = made("antrea", usage=SERVER)
FRONT, CLIENTS = made("front-proxy-ca", ca=True), made("kubernetes", ca=True)
TRUST = Trust(
    client_ca=CLIENTS.pem,
    front_ca=FRONT.pem,
    front_names=("front-proxy-client",),
    user_headers=("X-Remote-User",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)
OWN = {"Authorization": "Bearer secret"}
FORGED = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}


class Computes:
    async def answer(self, question: Question) -> msgspec.Struct:
        if question.name == "broken":
            raise RuntimeError("a bug")
        if question.name == "away":
            raise Unavailable("the controller is away")
        return Status(status="Success", code=201)


class Reviews:
    """An API server: the token `good` is jane, who may list, and each one that it signs is signy, who may nothing."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.read_keys = 0
        """How often its keys were read."""
        self.questions: list[dict[str, Any]] = []
        self.trouble: Exception | None = None
        self.signed: set[str] = set()

    def token(self, number: int, *, kid: str = "k1", seconds: float = 600) -> str:
        """A new one, signed."""
        head, claims = (
            base64.urlsafe_b64encode(msgspec.json.encode(part)).rstrip(b"=")
            for part in ({"alg": "ES256", "kid": kid}, {"exp": time.time() + seconds, "jti": f"{number}"})
        )
        text = b".".join((head, claims))
        r, s = decode_dss_signature(self.key.sign(text, ec.ECDSA(hashes.SHA256())))
        end = base64.urlsafe_b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).rstrip(b"=")
        found = b".".join((text, end)).decode()
        self.signed.add(found)
        return found

    async def get(self, path: str, kind: type[Any]) -> Any:
        assert path == "/openid/v1/jwks"
        self.read_keys += 1
        if self.trouble:
            raise self.trouble
        numbers = self.key.public_key().public_numbers()
        x, y = (
            base64.urlsafe_b64encode(one.to_bytes(32, "big")).rstrip(b"=").decode()
            for one in (numbers.x, numbers.y)
        )
        return msgspec.convert({"keys": [{"kid": "k1", "kty": "EC", "crv": "P-256", "x": x, "y": y}]}, kind)

    async def ask(self, path: str, question: Any, kind: type[Any]) -> Any:
        # as the real one does, which cannot send every text
        msgspec.json.encode(question)
        spec = question["spec"]
        self.questions.append(spec)
        if self.trouble:
            raise self.trouble
        if path.endswith("tokenreviews"):
            name = "jane" if spec["token"] in ("good", "fine") else "signy" * (spec["token"] in self.signed)
            known = {"authenticated": True, "user": {"username": name}}
            return msgspec.convert({"status": known if name else {}}, kind)
        allowed = spec["user"] == "jane" and spec.get("resourceAttributes", {}).get("verb") == "list"
        return msgspec.convert({"status": {"allowed": allowed}}, kind)


class World:
    running: asyncio.Future[None]

    def __init__(self, limits: Limits) -> None:
        self.reviews = Reviews()
        self.objects = Objects(RESOURCES, Computes())
        for store in self.objects.stores.values():
            store.sync()
        self.policies = self.objects.stores["controlplane.antrea.io", "networkpolicies"]
        self.authentication = Authentication("secret", self.reviews)
        self.authentication.trust = TRUST
        documents = openapi.documents(RESOURCES, definition_name, "v1")
        self.server = Server(
            self.authentication,
            Authorization(
                ["/healthz", "/slow"], self.reviews, granted={"/hook": frozenset(["kube-apiserver"])}
            ),
            self.objects,
            handlers={("GET", "/healthz"): _ok, ("GET", "/slow"): self.slow, ("POST", "/hook"): _ok},
            openapi=documents,
            limits=limits,
        )
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"

    async def ask(
        self, path: str, *, method: str = "GET", client: ssl.SSLContext | None = None, **more: Any
    ) -> tuple[int, Any]:
        connector = aiohttp.TCPConnector(ssl=client or client_tls())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, self.url + path, **more) as answer,
        ):
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json else text

    async def slow(self, _: Any) -> aiohttp.web.StreamResponse:
        self.asked.set()
        await self.may_answer.wait()
        return aiohttp.web.Response(text="at last")

    async def opened(self, request: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=client_tls())
        writer.write(request)
        return reader, writer


async def _ok(_: Any) -> aiohttp.web.StreamResponse:
    return aiohttp.web.Response(text="ok")


def client_tls(own: Made | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if own:
        load_pair(context, Certificate(own.pem, own.key_pem))
    return context


@asynccontextmanager
async def served(limits: Limits | None = None) -> AsyncIterator[World]:
    world = World(limits or Limits())
    tls = server_tls(Certificate(SERVING.pem, SERVING.key_pem))
    tls.load_verify_locations(cadata=TRUST.client_ca + TRUST.front_ca)
    tls.verify_mode = ssl.CERT_OPTIONAL
    world.running = asyncio.ensure_future(world.server.run(world.listening, tls))
    try:
        yield world
    finally:
        world.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await world.running
