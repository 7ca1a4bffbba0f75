"""A question to a DNS server for the addresses of a name.

Source: RFC 1035, RFC 6891 (EDNS), RFC 7766 (TCP)
"""

from __future__ import annotations

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype

from antrea.errors import Unavailable

SECONDS = 10.0
"""To wait for an answer."""
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
        read, _ = await dns.asyncquery.udp_with_fallback(question, address, timeout=seconds, port=port)
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
