"""Whether kube-apiserver has issued a token, by its signature alone: what it did not issue costs no question to find out.

This does not show that the token is still valid: its Pod may be gone, which a TokenReview checks. Tokens of another issuer, which
kube-apiserver may also accept, are not recognised here.
Source: https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery, RFC 7515, 7517, 7518
"""

from __future__ import annotations

import asyncio
import base64
import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from antrea.decoding import decode_json, guarded
from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

log = klog.logger(__name__)

PATH = "/openid/v1/jwks"
"""Path of kube-apiserver's keys, which it lets every ServiceAccount read."""
KEPT_SECONDS = 300.0
"""After which they are read again; what was read last counts until that has worked."""
AGAIN_SECONDS = 10.0
"""Between two reads, whatever tokens come."""
MAX_KEYS = 64


class _Header(msgspec.Struct, frozen=True):
    alg: str = ""
    kid: str = ""


class _Claims(msgspec.Struct, frozen=True):
    exp: float = 0.0


class Key(msgspec.Struct, frozen=True):
    """A public key: RSA or of an elliptic curve, which only P-256 is used of."""

    kid: str = ""
    kty: str = ""
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""


class KeySet(msgspec.Struct, frozen=True):
    """Keys that the API server publishes."""

    keys: tuple[Key, ...] = ()


class Publisher(Protocol):
    """Source of the keys."""

    async def get(self, path: str, kind: type[Any]) -> Any:
        """The object at `path`, or None. Raises Unavailable, Refused."""
        ...


class IssuedTokens:
    """Recognises tokens that the API server has issued."""

    def __init__(self, publisher: Publisher, now: Callable[[], float] = time.monotonic) -> None:
        self._publisher = publisher
        self._now = now
        self._keys: dict[str, Key] = {}
        self._read_at = -KEPT_SECONDS
        self._reading = asyncio.Lock()

    async def has(self, token: str) -> bool:
        """Whether it is signed with one of the API server's keys, and has not expired."""
        parts = token.split(".")
        if len(parts) != 3:
            return False
        try:
            header = decode_json(_bytes(parts[0]), _Header, "header")
            claims = decode_json(_bytes(parts[1]), _Claims, "claims")
            signature = _bytes(parts[2])
        except Invalid:
            return False
        if claims.exp < time.time():
            return False
        key = await self._key(header.kid)
        return key is not None and _signed(key, header.alg, ".".join(parts[:2]).encode(), signature)

    async def _key(self, kid: str) -> Key | None:
        if self._is_due(kid):
            async with self._reading:
                # who waited finds what the one before has read
                if self._is_due(kid):
                    self._read_at = self._now()
                    await self._read()
        return self._keys.get(kid)

    def _is_due(self, kid: str) -> bool:
        age = self._now() - self._read_at
        return age >= KEPT_SECONDS or (kid not in self._keys and age >= AGAIN_SECONDS)

    async def _read(self) -> None:
        try:
            key_set: KeySet | None = await self._publisher.get(PATH, KeySet)
        except (Unavailable, Refused) as error:
            log.v(2).info(
                "Failed to read the keys of tokens; kube-apiserver reviews each token", err=str(error)
            )
            return
        self._keys = {key.kid: key for key in (key_set.keys if key_set else ())[:MAX_KEYS]}


def _bytes(text: str) -> bytes:
    """Raises Invalid."""
    padded = text + "=" * (-len(text) % 4)
    return guarded("token", base64.b64decode, padded, altchars=b"-_", validate=True)


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")


def _signed(key: Key, algorithm: str, text: bytes, signature: bytes) -> bool:
    """Whether this is the signature of `text` by `key`."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 (13 MiB)
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature  # noqa: PLC0415

    try:
        if (key.kty, algorithm) == ("RSA", "RS256"):
            public = rsa.RSAPublicNumbers(_number(key.e), _number(key.n)).public_key()
            public.verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
            return True
        if (key.kty, key.crv, algorithm) == ("EC", "P-256", "ES256") and len(signature) == 64:
            r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
            point = ec.EllipticCurvePublicNumbers(_number(key.x), _number(key.y), ec.SECP256R1()).public_key()
            point.verify(encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))
            return True
    except (InvalidSignature, ValueError):
        pass
    return False
