"""Who asks: this process's own token, the aggregation layer in a user's name, a client certificate, a token of the cluster.

parity: k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go (order, TTL)
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import msgspec

from antrea.errors import Refused, Unavailable
from antrea.outside import klog
from antrea.outside.aggregated.expiring import Expiring
from antrea.outside.aggregated.status import Answered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from antrea.outside.aggregated.client_certificate import Subject

log = klog.logger(__name__)

TTL_SECONDS = 10.0
"""How long the API server's verdict on a token is remembered, as upstream."""
MOST_TOKENS, MOST_CERTIFICATES = 4096, 4096
MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"


class User(msgspec.Struct, frozen=True):
    """Who asks; `extra` is what the authenticator knows besides."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
LOOPBACK = User("system:apiserver", (MASTERS, AUTHENTICATED))


class Trust(msgspec.Struct, frozen=True):
    """Whom kube-apiserver says to trust, in the ConfigMap kube-system/extension-apiserver-authentication; PEM bundles."""

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
        """From the ConfigMap's data and the file that clientCAFile names."""
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
        return msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])
    except msgspec.DecodeError:
        log.warning("A key of the authentication configuration is no list of texts", key=key)
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


class Asker(Protocol):
    """The API server, for questions whose answer is in the object that comes back."""

    async def ask(self, path: str, question: Any, kind: type[Any]) -> Any:
        """Raises Unavailable, Refused."""
        ...


class Authentication:
    """`user` says who asks. `kube` None: only this process's own token is known."""

    def __init__(self, token: str, kube: Asker | None) -> None:
        self.trust = Trust()
        self._token = token.encode()
        self._kube = kube
        self._tokens: Expiring[User] = Expiring(TTL_SECONDS, MOST_TOKENS)
        self._subjects: dict[tuple[bytes, str], Subject | None] = {}

    async def user(self, request: web.Request) -> User:
        """Raises Answered: 401 for credentials that prove nothing, 503 if the API server cannot be asked now."""
        chain = peer_chain(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        if bearer and hmac.compare_digest(bearer.encode("utf-8", "surrogateescape"), self._token):
            return LOOPBACK
        if chain:
            user = self._fronted(request, chain) or self._certified(chain)
            if user:
                return _grouped(user)
        if bearer:
            return _grouped(await self._reviewed(bearer))
        if chain:
            raise Answered(401, "Unauthorized")
        return ANONYMOUS

    def _subject(self, bundle: str, chain: Sequence[bytes]) -> Subject | None:
        """Remembered by certificate and bundle, because every request of a connection asks."""
        from antrea.outside.aggregated.client_certificate import issued_by  # noqa: PLC0415 (13 MiB)

        key = (hashlib.sha256(b"".join(chain)).digest(), bundle)
        if key not in self._subjects:
            if len(self._subjects) >= MOST_CERTIFICATES:
                self._subjects.pop(next(iter(self._subjects)))
            self._subjects[key] = issued_by(bundle, chain[0], chain[1:])
        found = self._subjects[key]
        return found if found and time.time() <= found.until else None

    def _fronted(self, request: web.Request, chain: Sequence[bytes]) -> User | None:
        """The user in whose name the aggregation layer asks: its certificate counts against its own CA alone."""
        trust = self.trust
        subject = self._subject(trust.front_ca, chain) if trust.front_ca else None
        if not subject or (trust.front_names and subject.name not in trust.front_names):
            return None
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

    async def _reviewed(self, token: str) -> User:
        kube = self._kube
        if kube is None or not token.isascii():
            raise Answered(401, "Unauthorized")
        try:
            known = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
            user = await self._tokens.get(known, lambda: _review(kube, token))
        except Refused as no:
            log.warning("The API server does not let this program review tokens", err=no.why)
            raise Answered(401, "Unauthorized") from no
        except Unavailable as why:
            raise Answered(503, f"tokens cannot be reviewed now: {why}") from why
        if user is ANONYMOUS:
            raise Answered(401, "Unauthorized")
        return user


async def _review(kube: Asker, token: str) -> User:
    """ANONYMOUS if the token proves nothing."""
    question = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await kube.ask("/apis/authentication.k8s.io/v1/tokenreviews", question, TokenReview)
    if not answer.status.authenticated:
        return ANONYMOUS
    found = answer.status.user
    return User(found.username, found.groups, found.uid, found.extra)


def _grouped(user: User) -> User:
    """Everybody who is known is in a group of all who are, also whom the front proxy names without it."""
    if AUTHENTICATED in user.groups or "system:unauthenticated" in user.groups:
        return user
    return msgspec.structs.replace(user, groups=(*user.groups, AUTHENTICATED))


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
