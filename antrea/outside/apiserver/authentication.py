"""Authentication of requests: this process's own token, the aggregation layer in a user's name, a client certificate, a token of the cluster.

parity: k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go (order, TTL)
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import math
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import msgspec
from aiohttp import web

from antrea.decoding import decode_base64, decode_json
from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.apiserver.expiring import Expiring
from antrea.outside.apiserver.failure_limit import FailureLimit
from antrea.outside.apiserver.issued_token import IssuedTokens
from antrea.outside.apiserver.status import ApiError
from antrea.outside.listener.source import network
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.outside.apiserver.client_certificate import Subject

log = klog.logger(__name__)

TTL_SECONDS = 10.0
"""How long the API server's verdict on a token is remembered, as upstream."""
MAX_TOKENS, MAX_CERTIFICATES = 4096, 4096
ACCEPTED_SECONDS = 3600.0
"""How long a token that was good once is asked about before those that never were."""
MAX_QUESTIONS = 32
"""About tokens that were never good, to the API server at a time."""
FRONT_SECONDS, MAX_FRONTS = 3600.0, 64
"""How long an address counts as kube-apiserver's, which asks for our groups every minute; how many there may be."""
MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"


class User(msgspec.Struct, frozen=True):
    """The user of a request; `extra` are further attributes of the authenticator."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
LOOPBACK = User("system:apiserver", (MASTERS, AUTHENTICATED))


USER = web.RequestKey("antrea_user", User)
"""Key of a request under which its user is found."""
PROVED = web.RequestKey("antrea_proved", bool)
"""Whether its user is known, and has a right that not everybody has."""
FRONT_ADDRESS = web.RequestKey("antrea_front_address", bool)
"""Whether the aggregation layer has proved itself from the address of this request."""
CALLER = "Antrea-Caller"
"""Header in which another replica names its own caller, who is judged instead of the replica."""


def written_caller(user: User) -> str:
    """A user as the header CALLER has it."""
    return base64.b64encode(msgspec.json.encode(user)).decode()


def _read_caller(text: str) -> User:
    """Raises Answered: 400."""
    try:
        return decode_json(decode_base64(text, CALLER), User, CALLER)
    except Invalid as error:
        raise ApiError(400, f"the header {CALLER} is not understood: {error.why}") from error


class Trust(msgspec.Struct, frozen=True):
    """The CAs that kube-apiserver publishes for extension API servers, in the ConfigMap kube-system/extension-apiserver-authentication; PEM bundles."""

    client_ca: str = ""
    front_ca: str = ""
    front_names: tuple[str, ...] = ()
    """Common names that the aggregation layer may have; empty: any."""
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: dict[str, str], client_ca: str = "") -> Trust:
        """Read the ConfigMap's data and the file that clientCAFile names."""
        return cls(
            client_ca=f"{data.get('client-ca-file', '')}\n{client_ca}".strip(),
            front_ca=data.get("requestheader-client-ca-file", ""),
            front_names=_list(data, "requestheader-allowed-names"),
            user_headers=_list(data, "requestheader-username-headers"),
            uid_headers=_list(data, "requestheader-uid-headers"),
            group_headers=_list(data, "requestheader-group-headers"),
            extra_prefixes=_list(data, "requestheader-extra-headers-prefix"),
        )


def _list(data: dict[str, str], key: str) -> tuple[str, ...]:
    try:
        return decode_json(data.get(key) or "[]", tuple[str, ...], key)
    except Invalid:
        log.warning("A key of the authentication configuration is not a list of strings", key=key)
        return ()


class _ReviewedUser(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _ReviewedUser = _ReviewedUser()


class TokenReview(msgspec.Struct, frozen=True):
    """The part of the API server's answer that is read."""

    status: _ReviewStatus = _ReviewStatus()


class ReviewClient(Protocol):
    """The API server, for questions whose answer is in the object that comes back, and for its keys."""

    async def ask(self, path: str, question: Any, kind: type[Any]) -> Any:
        """Raises Unavailable, Refused."""
        ...

    async def get(self, path: str, kind: type[Any]) -> Any:
        """None if there is nothing. Raises Unavailable, Refused."""
        ...


class Authentication:
    """`user` gives the user of a request. `kube` None: only this process's own token is accepted.

    `replica` is the name of other replicas of this program, each of which may ask in the name of its own caller.
    """

    def __init__(self, token: str, kube: ReviewClient | None, *, replica: str = "") -> None:
        self.trust = Trust()
        self._replica = replica
        self._token = token.encode()
        self._kube = kube
        self._issued = IssuedTokens(kube) if kube else None
        self._tokens: Expiring[User] = Expiring(TTL_SECONDS, MAX_TOKENS)
        self._accepted: Expiring[bool] = Expiring(ACCEPTED_SECONDS, MAX_TOKENS)
        self._failures = FailureLimit()
        self._fronts: Expiring[bool] = Expiring(FRONT_SECONDS, MAX_FRONTS)
        self._questions = asyncio.Semaphore(MAX_QUESTIONS)
        self._proved: weakref.WeakKeyDictionary[asyncio.Transport, str] = weakref.WeakKeyDictionary()
        """Authenticated connections, with the name of their user."""
        self._front_transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        """Connections of the aggregation layer, which sends requests of many users."""
        self._subjects: dict[tuple[bytes, str], Subject | None] = {}

    async def user(self, request: web.Request) -> User:
        """Raises Answered: 401 for credentials that prove nothing, 503 if the API server cannot be asked now."""
        user = await self._sender(request)
        if user is not ANONYMOUS and request.transport:
            self._proved[request.transport] = user.name
        if self._replica and user.name == self._replica and (caller := request.headers.get(CALLER)):
            return _read_caller(caller)
        return user

    async def _sender(self, request: web.Request) -> User:
        chain = peer_chain(request)
        bearer = _bearer(request.headers.get("Authorization", ""))
        if self._is_own(bearer):
            return LOOPBACK
        if chain:
            user = self._fronted(request, chain) or self._certified(chain)
            if user:
                return _grouped(user)
        if bearer:
            return _grouped(await self._reviewed(bearer, self._failure_key(request)))
        if chain:
            raise ApiError(401, "Unauthorized")
        return ANONYMOUS

    async def bearer_user(self, header: str, address: str) -> User:
        """The user of an Authorization header that came by another protocol than HTTP/1, from this address.

        Raises Answered: 401 also without a token, 503 if the API server cannot be asked now.
        """
        bearer = _bearer(header)
        if self._is_own(bearer):
            return LOOPBACK
        if not bearer:
            raise ApiError(401, "Unauthorized")
        return _grouped(await self._reviewed(bearer, network(address)))

    def _is_own(self, bearer: str) -> bool:
        return bool(bearer) and hmac.compare_digest(bearer.encode("utf-8", "surrogateescape"), self._token)

    def holder(self, request: web.Request, user: User) -> str:
        """Return the holder of the connection, of those whose connections are limited: a user at an address; empty: no limit."""
        if user == LOOPBACK or request.transport in self._front_transports:
            return ""
        return f"{user.name} at {network(_address(request))}"

    def is_front_address(self, request: web.Request) -> bool:
        """Whether kube-apiserver asks from there, as its aggregation layer has proved; webhooks it calls without a proof."""
        return self._fronts.has(_address(request))

    def _subject(self, bundle: str, chain: Sequence[bytes]) -> Subject | None:
        """Remembered by certificate and bundle, because every request of a connection asks."""
        from antrea.outside.apiserver.client_certificate import issued_by  # noqa: PLC0415 (13 MiB)

        key = (hashlib.sha256(b"".join(chain)).digest(), bundle)
        if key not in self._subjects:
            if len(self._subjects) >= MAX_CERTIFICATES:
                self._subjects.pop(next(iter(self._subjects)))
            self._subjects[key] = issued_by(bundle, chain[0], chain[1:])
        subject = self._subjects[key]
        return subject if subject and time.time() <= subject.until else None

    def _fronted(self, request: web.Request, chain: Sequence[bytes]) -> User | None:
        """The user in whose name the aggregation layer asks: its certificate counts against its own CA alone."""
        trust = self.trust
        subject = self._subject(trust.front_ca, chain) if trust.front_ca else None
        if not subject or (trust.front_names and subject.name not in trust.front_names):
            return None
        if request.transport:
            self._front_transports.add(request.transport)
        self._fronts.learn(_address(request), True)
        name = _first(request, trust.user_headers)
        if not name:
            return None
        groups = [value for header in trust.group_headers for value in request.headers.getall(header, ())]
        extra: dict[str, list[str]] = {}
        for header, value in request.headers.items():
            for prefix in trust.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    extra.setdefault(unquote(header[len(prefix) :].lower()), []).append(value)
        return User(
            name,
            tuple(groups),
            _first(request, trust.uid_headers),
            {key: tuple(values) for key, values in extra.items()},
        )

    def _certified(self, chain: Sequence[bytes]) -> User | None:
        subject = self._subject(self.trust.client_ca, chain) if self.trust.client_ca else None
        if not subject or not subject.name:
            return None
        return User(subject.name, subject.groups)

    async def _reviewed(self, token: str, whose: str) -> User:
        kube, issued = self._kube, self._issued
        if kube is None or issued is None or not token.isascii():
            raise ApiError(401, "Unauthorized")
        known = hashlib.sha256(token.encode()).digest()
        # whatever others of that address did: nobody has any number of tokens that the API server signs
        trusted = self._accepted.has(known) or await issued.has(token)
        ask = partial(_review, kube, token) if trusted else partial(self._first_review, kube, token, whose)
        try:
            user = await self._tokens.get(known, ask)
        except Refused as error:
            log.warning("Not authorized to create TokenReviews", err=error.why)
            raise ApiError(401, "Unauthorized") from error
        except Unavailable as error:
            raise ApiError(503, f"tokens cannot be reviewed now: {error}") from error
        if user is ANONYMOUS:
            raise ApiError(401, "Unauthorized")
        self._accepted.learn(known, True)
        return user

    def _failure_key(self, request: web.Request) -> str:
        """Return the key under which failures are counted: an address, or the user authenticated over this connection, apart from strangers there."""
        if request.transport is None:
            return ""
        address = network(_address(request))
        prover = self._proved.get(request.transport)
        return f"{prover} at {address}" if prover else address

    async def _first_review(self, kube: ReviewClient, token: str, whose: str) -> User:
        """Review a token that was never valid. Raises Answered: 429 after too many failures of the same key."""
        if wait := self._failures.reserve(whose):
            why = f"too many tokens of {whose} proved nothing, try again in {math.ceil(wait)} s"
            raise ApiError(429, why)
        async with self._questions:
            user = await _review(kube, token)
        if user is not ANONYMOUS:
            self._failures.cancel(whose)
        return user


async def _review(kube: ReviewClient, token: str) -> User:
    """ANONYMOUS if the token proves nothing."""
    question = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await kube.ask("/apis/authentication.k8s.io/v1/tokenreviews", question, TokenReview)
    if not answer.status.authenticated:
        return ANONYMOUS
    reviewed = answer.status.user
    return User(reviewed.username, reviewed.groups, reviewed.uid, reviewed.extra)


def _grouped(user: User) -> User:
    """Everybody who is known is in a group of all who are, also whom the front proxy names without it."""
    if AUTHENTICATED in user.groups or "system:unauthenticated" in user.groups:
        return user
    return msgspec.structs.replace(user, groups=(*user.groups, AUTHENTICATED))


def _bearer(header: str) -> str:
    """The token of an Authorization header; empty: it has none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _address(request: web.Request) -> str:
    """Where the request comes from."""
    peer = (request.transport.get_extra_info("peername") if request.transport else None) or ("",)
    return str(peer[0])


def _first(request: web.Request, headers: Sequence[str]) -> str:
    return next((request.headers[header] for header in headers if request.headers.get(header)), "")


def peer_chain(request: web.Request) -> tuple[bytes, ...]:
    """The client's certificate and the others that it sent, DER; empty if it sent none."""
    tls = request.transport.get_extra_info("ssl_object") if request.transport else None
    leaf = tls.getpeercert(binary_form=True) if tls else None
    if not tls or not leaf:
        return ()
    # ssl.SSLObject shows the chain from Python 3.13 on
    sent = tls._sslobj.get_unverified_chain() or ()
    others = [certificate.public_bytes(2) for certificate in sent]
    return (leaf, *(other for other in others if other != leaf))
