"""Rule file of the engine for one rule with l7Protocols: signatures that reject all that the rule does not allow.

Upstream writes `pass` signatures, and a connection whose first request passes is not inspected again. Here each request is
rejected unless it is allowed, so that the tenth on a connection is judged as the first. A connection of another protocol than
the rule's gets no answer from its server.
Source: docs.suricata.io/en/suricata-7.0.10/rules
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.errors import Invalid
from antrea.features.network_policy.l7.pattern import ANY, HEADERS, REQUEST_LINE, http1, http2, server_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis.controlplane import HTTPProtocol, L7Protocol, TLSProtocol

MAX_LENGTH = 8000
"""Maximum number of characters of a signature: Suricata reads lines of less than 8192."""
MAX_HEAD = 16384
"""Maximum number of bytes of the request line and headers of one request."""
UNKNOWN_BYTES = 4096
"""Maximum number of bytes that a client may send until the protocol is known."""
DEFAULT = 'drop ip any any -> any any (msg:"No rule"; sid:1;)\n'
"""Rule file for packets with a VLAN that no tenant has."""
GONE = (
    'rejectboth tcp-pkt any any -> any any (msg:"Rule is gone"; dsize:>0; sid:1;)\n'
    'drop udp any any -> any any (msg:"Rule is gone"; sid:2;)\n'
    'drop icmp any any -> any any (msg:"Rule is gone"; sid:3;)\n'
)
"""Rule file for connections of a deleted rule. Without an option for packets a signature only judges the first one of a
connection.
"""
SEEN = "flowbits:isnotset,antrea.l7"
CLIENT, SERVER = "flow:to_server,established", "flow:to_client,established"
NOT_BEGUN = ("stream_size:server,<,2", f"stream_size:client,<,{UNKNOWN_BYTES}")
"""Options of a connection on which the server has sent nothing, and the client little."""
FIRST_HTTP, FIRST_TLS = r"!#$%&'*+.^_\x60|~0-9A-Za-z\r\n\x2d", r"\x16"
"""First bytes of allowed connections, as members of a class of characters: a method (RFC 9112, 3) or an empty line before it
(2.2), or a

record with a handshake (RFC 8446, 5.1).
"""


def signatures(protocols: Iterable[L7Protocol], *, logs: bool) -> str:
    """Make the rule file of one tenant; with `logs` there are also alerts for what is allowed. Raises Invalid if it does not
    fit.
    """
    rows = tuple(protocols)
    begins = (FIRST_HTTP if any(row.http for row in rows) else "") + (
        FIRST_TLS if any(row.tls for row in rows) else ""
    )
    bodies = [*_http([row.http for row in rows if row.http], logs=logs)]
    bodies += _tls([row.tls for row in rows if row.tls], logs=logs)
    bodies += _neither(begins)
    lines = [f"{body} sid:{number};)" for number, body in enumerate(bodies, start=1)]
    if any(len(line) > MAX_LENGTH for line in lines):
        raise Invalid(
            "l7Protocols",
            f"they need a signature of more than {MAX_LENGTH} characters: state fewer in one rule",
        )
    return "\n".join(lines) + "\n"


def _signature(action: str, protocol: str, message: str, *options: str) -> str:
    return f'{action} {protocol} any any -> any any (msg:"{message}"; ' + " ".join(
        f"{option};" for option in options
    )


def _matching(expression: str, *, negated: bool = False) -> str:
    return f'pcre:{"!" if negated else ""}"/{expression}/"'


def _http(allowed: list[HTTPProtocol], *, logs: bool) -> Iterator[str]:
    if not allowed:
        return
    version1 = "^(?:" + "|".join(dict.fromkeys(map(http1, allowed))) + ")"
    version2 = "^(?:" + "|".join(dict.fromkeys(map(http2, allowed))) + ")"
    # http.start has headers of one name united and folds undone: what was sent is in http.header.raw alone
    for buffer, form in (("http.request_line", REQUEST_LINE), ("http.header.raw", HEADERS)):
        yield _signature(
            "reject", "http1", "Reject malformed request", CLIENT, buffer, _matching(form, negated=True)
        )
    yield _signature("reject", "http1", "Reject long request", CLIENT, "http.start", f"bsize:>{MAX_HEAD}")
    yield _signature("reject", "http2", "Reject long request", CLIENT, "http.header", f"bsize:>{MAX_HEAD}")
    for protocol, buffer, expression in (
        ("http1", "http.start", version1),
        ("http2", "http.header", version2),
    ):
        yield _signature(
            "reject", protocol, "Reject request", CLIENT, buffer, _matching(expression, negated=True)
        )
        if logs:
            yield _signature("alert", protocol, "Allow request", CLIENT, buffer, _matching(expression))
    yield _signature("alert", "http", "HTTP", CLIENT, "flowbits:set,antrea.l7", "noalert")


def _tls(allowed: list[TLSProtocol], *, logs: bool) -> Iterator[str]:
    """Yield signatures that reject the answer to a handshake without an allowed server name."""
    if not allowed:
        return
    if any(handshake.sni in ANY for handshake in allowed):
        yield _signature("alert", "tls", "TLS", CLIENT, "flowbits:set,antrea.l7", "noalert")
        return
    expression = (
        "^(?:" + "|".join(dict.fromkeys(server_name(handshake.sni) for handshake in allowed)) + r")\z"
    )
    yield _signature(
        "reject", "tls", "Reject server name", CLIENT, "tls.sni", _matching(expression, negated=True)
    )
    quiet = () if logs else ("noalert",)
    message = "Allow server name" if logs else "TLS"
    yield _signature(
        "alert", "tls", message, CLIENT, "tls.sni", _matching(expression), "flowbits:set,antrea.l7", *quiet
    )


def _neither(begins: str) -> Iterator[str]:
    """Yield signatures for connections without a request so far: the server may send nothing, and the client little.

    A connection whose first byte shows another protocol is rejected before the server answers: connection tracking then takes
    the reset as part of the connection, and it returns from the address of a Service that the client used.
    """
    message = "Reject other protocol"
    begun = "antrea.begun"
    yield _signature(
        "alert", "tcp-pkt", "Begun", CLIENT, _matching(f"^[{begins}]"), f"flowbits:set,{begun}", "noalert"
    )
    unknown = (CLIENT, "dsize:>0", f"flowbits:isnotset,{begun}", SEEN, *NOT_BEGUN)
    yield _signature("reject", "tcp-pkt", message, *unknown, _matching(f"^[^{begins}]"))
    yield _signature("rejectboth", "tcp", message, SERVER, "dsize:>0", SEEN)
    yield _signature("reject", "tcp", message, CLIENT, f"stream_size:client,>,{UNKNOWN_BYTES}", SEEN)
    yield _signature("reject", "tcp", message, CLIENT, "app-layer-protocol:failed", SEEN)
    yield 'drop udp any any -> any any (msg:"Drop other protocol";'
    yield 'drop icmp any any -> any any (msg:"Drop other protocol";'
