"""Judgement of requests by rules with application protocols, independent of the expressions that the engine gets.

Source: docs/antrea-l7-network-policy.md of upstream, for wildcards; docs/l7-network-policy.md
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.apis.crd.network_policy import HttpProtocol, L7Protocol, TlsProtocol

WILDCARD = "*"
ANY = ("", "*", "**")
"""Patterns that ask for nothing."""
_ODD_PATH = re.compile(r"/\.{1,2}(?:[/;%]|$)|%2[ef]|%5c|%00|\\", re.IGNORECASE)
"""Paths that servers may take for another one."""


class Request(msgspec.Struct, frozen=True):
    """One over HTTP, or a handshake of TLS where there is a server name."""

    method: str = ""
    host: str = ""
    """Without a port; empty: none."""
    path: str = ""
    """With a query, if it has one."""
    server_name: str = ""

    @property
    def description(self) -> str:
        """Such as GET http://shop.example/cart."""
        if self.server_name:
            return f"TLS server name {self.server_name}"
        return f"{self.method} {f'http://{self.host}' if self.host else ''}{self.path}"


def request_of(text: str, server_name: str) -> Request | None:
    """`text` is a method and a path or URL; None without either. Raises Invalid."""
    if text and server_name:
        raise Invalid(
            "--request", "a connection of TLS shows no request: leave one of --request and --server-name out"
        )
    if server_name:
        return Request(server_name=server_name)
    if not text:
        return None
    method, _, target = text.partition(" ")
    parts = urlsplit(target)
    if not method or (target[:1] != "/" and (parts.scheme != "http" or not parts.hostname)):
        raise Invalid(
            "--request",
            f"{text[:80]!r} is not a method and target such as 'GET /cart' or 'GET http://shop.example/cart'",
        )
    if target.startswith("/"):
        return Request(method, "", target)
    return Request(
        method, parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    )


def lets_pass(protocols: Iterable[L7Protocol], request: Request) -> bool:
    """Whether any of these allows it."""
    return any(
        (protocol.http is not None and not request.server_name and _http(protocol.http, request))
        or (protocol.tls is not None and bool(request.server_name) and _tls(protocol.tls, request))
        for protocol in protocols
    )


def _http(allowed: HttpProtocol, request: Request) -> bool:
    if allowed.path not in ANY and _ODD_PATH.search(request.path.partition("?")[0]):
        return False
    return (
        allowed.method in (None, "", request.method)
        and _matches(allowed.path, request.path)
        and (
            allowed.host in ANY
            or (bool(request.host) and _matches(allowed.host.lower(), request.host.lower()))
        )
    )


def _tls(allowed: TlsProtocol, request: Request) -> bool:
    return _matches(allowed.sni.lower(), request.server_name.lower())


def _matches(pattern: str, text: str) -> bool:
    """An asterisk counts at either end alone; an empty pattern is any text."""
    if pattern in ANY:
        return True
    first, last = pattern.startswith(WILDCARD), pattern.endswith(WILDCARD)
    inner = pattern.removeprefix(WILDCARD).removesuffix(WILDCARD)
    if first and last:
        return inner in text
    if first:
        return text.endswith(inner)
    return text.startswith(inner) if last else text == inner
