"""A question to a DNS server for the addresses of a name.

Source: RFC 1035, RFC 6891 (EDNS), RFC 7766 (TCP)
"""

from __future__ import annotations

import asyncio
from typing import Any

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
"""Resolver configuration of a Pod with `hostNetwork`, whose `dnsPolicy` is not another: that of the Node."""
ANSWERS = (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)
"""Response codes of a conclusive answer, NXDOMAIN included."""
_HEADER = 12
_RESPONSE, _TRUNCATED = 0x80, 0x02
"""Bits of the third byte of a message."""


async def ask(name: str, *, v6: bool, server: tuple[str, int], seconds: float = SECONDS) -> bytes:
    """The message of an answer, by UDP and, where it is truncated, by TCP. Raises Unavailable if the server cannot answer."""
    kind = dns.rdatatype.AAAA if v6 else dns.rdatatype.A
    address, port = server
    try:
        question = dns.message.make_query(name, kind, use_edns=True).to_wire()
        async with asyncio.timeout(seconds):
            answer = await _by_udp(question, server)
            if answer[2] & _TRUNCATED:
                answer = await _by_tcp(question, server)
    except (TimeoutError, dns.exception.DNSException, EOFError, OSError, ValueError) as error:
        raise Unavailable(f"{name} of {address}:{port}: {type(error).__name__} {error}") from error
    code = answer[3] & 0xF
    if code not in ANSWERS:
        raise Unavailable(
            f"{name} of {address}:{port}: it answers {dns.rcode.to_text(dns.rcode.Rcode(code))}"
        )
    return answer


async def _by_udp(question: bytes, server: tuple[str, int]) -> bytes:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(lambda: _Answer(question), remote_addr=server)
    try:
        transport.sendto(question)
        return await protocol.found
    finally:
        transport.close()


async def _by_tcp(question: bytes, server: tuple[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(*server)
    try:
        writer.write(len(question).to_bytes(2) + question)
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
    finally:
        writer.close()
    if not is_answer(question, answer):
        raise ValueError("what it sends by TCP is not an answer to the question")
    return answer


class _Answer(asyncio.DatagramProtocol):
    """Waits for the answer to a question: what is none does not end the wait."""

    def __init__(self, question: bytes) -> None:
        self._question = question
        self.found: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, _addr: tuple[str | Any, int]) -> None:
        if not self.found.done() and is_answer(self._question, data):
            self.found.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.found.done():
            self.found.set_exception(exc)


def is_answer(question: bytes, answer: bytes) -> bool:
    """Whether a message has the id and the question of another, and is a response."""
    end = question.index(b"\0", _HEADER) + 5
    same = answer[:2] == question[:2] and answer[_HEADER:end].lower() == question[_HEADER:end].lower()
    return same and answer[4:6] == question[4:6] and bool(answer[2] & _RESPONSE)


def configured_servers(path: str = RESOLV_CONF) -> list[tuple[str, int]]:
    """Address and port of each name server in the file, in its order; none where it cannot be read.

    Source: resolv.conf(5)
    """
    try:
        servers = dns.resolver.Resolver(path).nameservers
    except (OSError, dns.exception.DNSException):
        return []
    return [(server, PORT) for server in servers if isinstance(server, str)]
