"""Patterns of requests as Perl-compatible regular expressions.

Text of a user becomes hexadecimal escapes, so that none of it can end the expression or the rule around it. Loops over what a
client sends are possessive: the time of a match grows with the length of the request and no faster, since an expression that
exceeds the engine's limits decides nothing. Sources: RFC 9110, RFC 9112 and RFC 9113 for what a request is, pcre2pattern(3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antrea.apis.controlplane import HTTPProtocol

WILDCARD = "*"
ANY = ("", "*", "**")
"""Texts of `host`, `path` and `sni` that match everything: a request may lack these fields."""
TOKEN = r"[!#$%&'*+.^_\x60|~0-9A-Za-z-]++"  # noqa: S105 (of HTTP)
"""Method or name of a header (RFC 9110, 5.6.2)."""
VALUE = r"[^\r\n\x00]*+\r\n"
LINE = rf"(?!(?i:content-length|transfer-encoding)\x3a|(?i:upgrade)\x3a[^\r\n]*?(?i:h2c)){TOKEN}\x3a{VALUE}"
"""Header that neither frames the body nor changes the protocol; a folded one has no name, so it does not match."""
FRAMING = (
    r"(?:(?i:content-length)\x3a[ \t]*+[0-9]{1,18}[ \t]*+\r\n"
    r"|(?i:transfer-encoding)\x3a[ \t]*+(?i:chunked)[ \t]*+\r\n)"
)
REQUEST_LINE = rf"^{TOKEN} [^\s\x00]++ HTTP\x2f1\.[01]\s*+\z"
"""Method, target and version."""
HEADERS = rf"^(?:{LINE})*+(?:{FRAMING}(?:{LINE})*+)?(?:\r\n){{0,2}}\z"
"""Headers, as they were sent, that all servers read alike: one length of the body at most, no folded line, no bare line feed.

The same headers follow a chunked body, with the empty line of its end; headers there are refused.
"""
NO_TRICK = r"(?![^?\s]*?(?:\x2f\.\.?(?:[\x2f?\x3b%\s]|\z)|%2[eEfF]|%5[cC]|%00|\x5c))"
"""Lookahead against a path that servers would read as another one: dot segments, and separators that are encoded or reversed."""
NOT_SPACE = r"[^\s\x00]"
IN_HOST = r"[^\s\x00\x2f?#@\x3a\x5b\x5d]"
PORT = r"(?:\x3a[0-9]{1,5})?"
ANY_HOST = rf"(?:\x5b[0-9A-Fa-f\x3a.]++\x5d|{IN_HOST}*+){PORT}"
"""Host of an absolute URI, also an IPv6 address in brackets (RFC 3986, 3.2.2)."""


def literal(text: str) -> str:
    """Return the expression that matches exactly this text; all but letters and digits is written by its bytes."""
    return "".join(
        chr(byte) if chr(byte).isalnum() and byte < 0x80 else rf"\x{byte:02x}" for byte in text.encode()
    )


def wildcard(text: str, other: str) -> str:
    """Return the expression for `text` with * at its ends for any number of characters of the class `other`.

    parity: pkg/agent/controller/networkpolicy/l7engine/reconciler.go convertContent
    """
    head = f"{other}*?" if text.startswith(WILDCARD) else ""
    inner = text.removeprefix(WILDCARD)
    tail = f"{other}*+" if inner.endswith(WILDCARD) else ""
    return f"{head}{literal(inner.removesuffix(WILDCARD))}{tail}"


def host(text: str) -> str:
    """Return the expression for the host of a request in any case, with or without a port."""
    return f"(?i:{wildcard(text, IN_HOST)}){PORT}"


def target(path: str) -> str:
    """Return the expression for the path and query of a request; an empty `path` is any target."""
    if path in ANY:
        return f"{NOT_SPACE}++"
    return rf"(?=\x2f){NO_TRICK}{wildcard(path, NOT_SPACE)}"


def http1(allowed: HTTPProtocol) -> str:
    """Return the expression for the request line, and headers if a host is required, of a request over HTTP/1.

    The host is that of the only Host header, and of the target if that is an absolute URI.
    """
    method = literal(allowed.method) if allowed.method else TOKEN
    if allowed.host in ANY:
        return rf"{method} {_in_uri(ANY_HOST, allowed.path)} HTTP\x2f"
    name, other = host(allowed.host), r"(?!(?i:host)\x3a)[^\r\n]++\r\n"
    header = rf"(?:{other})*+(?i:host)\x3a[ \t]*+{name}[ \t]*+\r\n(?:{other})*+\r\n"
    path = "" if allowed.path in ANY else allowed.path
    return rf"{method} {_in_uri(name, path or '/*')} HTTP\x2f1\.[01]\r\n{header}"


def http2(allowed: HTTPProtocol) -> str:
    """Return the expression for all headers of a request over HTTP/2: pseudo-headers come first, and only there."""
    has_host = allowed.host not in ANY
    wanted = {
        "method": literal(allowed.method) if allowed.method else TOKEN,
        "path": target(allowed.path),
        "scheme": "[a-z]++",
        "authority": host(allowed.host) if has_host else f"{NOT_SPACE}++",
    }
    first = "|".join(rf"\x3a{name}\x3a {value}\r\n" for name, value in wanted.items())
    forbidden = r"\x3a|(?i:host)\x3a" if has_host else r"\x3a"
    needed = ("method", "path", *(("authority",) if has_host else ()))
    present = "".join(rf"(?=(?:\x3a[^\r\n]*+\r\n)*?\x3a{name}\x3a )" for name in needed)
    return rf"{present}(?:{first})++(?:(?!{forbidden})[^\r\n]++\r\n)*+\z"


def server_name(text: str) -> str:
    """Return the expression for a TLS server name, in any case."""
    return f"(?i:{wildcard(text, NOT_SPACE)})"


def _in_uri(name: str, path: str) -> str:
    """Return the expression for the target alone, or after a scheme and a host."""
    return rf"(?:(?i:http)\x3a\x2f\x2f{name}(?=\x2f))?{target(path)}" if path else target(path)
