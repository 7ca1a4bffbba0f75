"""DNS answers: which addresses a server gives to the name that was asked for.

Anybody may write what stands here. Nothing counts but the addresses of that name, by its chain of aliases.
Source: RFC 1035 (messages), RFC 6891 (EDNS), RFC 7766 (length of a message over TCP)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype

from antrea.errors import Invalid

if TYPE_CHECKING:
    from dns.rrset import RRset

MOST_ALIASES = 16
"""Of a chain; resolvers give up before."""
MOST_ADDRESSES = 256
"""Of one answer that count."""
TYPES = {4: dns.rdatatype.A, 6: dns.rdatatype.AAAA}


class DnsAnswer(NamedTuple):
    """The addresses of a name."""

    name: str
    """In lower case, without the dot of the root."""
    addresses: tuple[tuple[str, int], ...]
    """Each with the seconds that it may be kept."""


def dns_answer(message: bytes) -> DnsAnswer | None:
    """The answer of a message to the name in its question; None if that is no name's address.

    Truncated answers count as far as they go. Raises Invalid for what is no answer to one question.
    """
    try:
        read = dns.message.from_wire(message, ignore_trailing=True, continue_on_error=True)
    except (dns.exception.DNSException, ValueError, IndexError) as no:
        raise Invalid("DNS message", f"{type(no).__name__}: {no}") from no
    return answer_in(read)


def answer_in(read: dns.message.Message) -> DnsAnswer | None:
    """The same, of a message that was read. Raises Invalid."""
    if not read.flags & dns.flags.QR or len(read.question) != 1:
        raise Invalid("DNS message", "it is no answer to one question")
    (question,) = read.question
    if question.rdclass != dns.rdataclass.IN or question.rdtype not in TYPES.values():
        return None
    if read.rcode() != dns.rcode.NOERROR:
        return None
    records = {
        (found.name, found.rdtype): found for found in read.answer if found.rdclass == question.rdclass
    }
    owner, seconds = _canonical(question.name, records)
    found = records.get((owner, question.rdtype))
    if found is None:
        return None
    seconds = found.ttl if seconds is None else min(seconds, found.ttl)
    addresses = tuple((one.address, seconds) for one, _ in zip(found, range(MOST_ADDRESSES), strict=False))
    return DnsAnswer(name_text(question.name), addresses)


def name_text(name: dns.name.Name) -> str:
    """In lower case, without the dot of the root."""
    return name.to_text(omit_final_dot=True).lower()


def _canonical(
    name: dns.name.Name, records: dict[tuple[dns.name.Name, dns.rdatatype.RdataType], RRset]
) -> tuple[dns.name.Name, int | None]:
    """The name at the end of the chain of aliases, and the shortest time to live of its links. Raises Invalid."""
    seconds: int | None = None
    for _ in range(MOST_ALIASES):
        alias = records.get((name, dns.rdatatype.CNAME))
        if alias is None:
            return name, seconds
        seconds = alias.ttl if seconds is None else min(seconds, alias.ttl)
        name = alias[0].target
    raise Invalid("DNS message", f"more than {MOST_ALIASES} aliases")
