"""A question to a DNS server for the addresses of a name.

Source: RFC 1035, RFC 6891 (EDNS), RFC 7766 (TCP)
"""

from __future__ import annotations

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype
import dns.resolver

from antrea.errors import Unavailable

SECONDS = 10.0
"""To wait for an answer."""
PORT = 53
RESOLV_CONF = "/etc/resolv.conf"
"""Of a Pod with `hostNetwork`, whose `dnsPolicy` is not another: that of the Node."""
ANSWERS = (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)
"""Response codes of a conclusive answer, NXDOMAIN included."""


async def ask(
    name: str, *, v6: bool, server: tuple[str, int], seconds: float = SECONDS
) -> dns.message.Message:
    """By UDP and, where the answer is truncated, by TCP. Raises Unavailable if the server cannot answer."""
    kind = dns.rdatatype.AAAA if v6 else dns.rdatatype.A
    address, port = server
    try:
        question = dns.message.make_query(name, kind, use_edns=True)
        # what is no answer to this question, by its id, name or sender, does not end the wait for the answer
        read, _ = await dns.asyncquery.udp_with_fallback(
            question, address, timeout=seconds, port=port, ignore_unexpected=True, ignore_errors=True
        )
    except (
        dns.exception.DNSException,
        EOFError,
        OSError,
        ValueError,
    ) as no:  # EOFError: it ends the connection
        raise Unavailable(f"{name} of {address}:{port}: {type(no).__name__} {no}") from no
    if read.rcode() not in ANSWERS:
        raise Unavailable(f"{name} of {address}:{port}: it answers {dns.rcode.to_text(read.rcode())}")
    return read


def configured_servers(path: str = RESOLV_CONF) -> list[tuple[str, int]]:
    """Address and port of each name server in the file, in its order; none where it cannot be read.

    Source: resolv.conf(5)
    """
    try:
        found = dns.resolver.Resolver(path).nameservers
    except (OSError, dns.exception.DNSException):
        return []
    return [(one, PORT) for one in found if isinstance(one, str)]
