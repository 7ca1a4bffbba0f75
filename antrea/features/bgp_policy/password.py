"""Passwords of BGP sessions: the Secret antrea-bgp-passwords in the Namespace of the agent, with a key for each peer.

kube-apiserver takes no colons in keys of Secrets, so that an IPv6 address is written with `_` instead.
parity: docs/bgp-policy.md BGP Authentication
"""

from __future__ import annotations

from typing import Final

import msgspec

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.decoding import decode_base64, decode_text, is_number
from antrea.errors import Invalid
from antrea.facts.fact import Fact
from antrea.features.framework.address import canonical
from antrea.host.bgp import Password

SECRET: Final = "antrea-bgp-passwords"  # noqa: S105 (the name of an object)
MAX_ASN: Final = 65535
MAX_LENGTH: Final = 80
"""Bytes of a password of TCP MD5 in Linux (TCP_MD5SIG_MAXKEYLEN)."""
REFUSED_CHARACTERS: Final = frozenset("|")
"""FRR takes what follows for a filter of the output of a command."""


class PasswordSecret(CoreStruct, frozen=True):
    """Secret with base64 values."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class PeerPassword(Fact, frozen=True):
    """Password of the session with a peer; the feed of the Secret writes it."""

    peer: str
    """Address and AS number, as in the key of the Secret, the address as Python writes it: 192.0.2.1-64512."""
    password: Password = Password("")
    why_not: str = ""
    """Why the value cannot be used; empty: it can."""

    @property
    def key(self) -> str:
        return self.peer


def peer_key(address: str, asn: int) -> str:
    """Return the key of a peer in the Secret."""
    return f"{canonical(address)}-{asn}"


def password_rows(secret: PasswordSecret) -> tuple[PeerPassword, ...]:
    """Make a row for each key that names a peer; others are ignored."""
    if secret.metadata.name != SECRET:
        return ()
    rows = {}
    for key, value in secret.data.items():
        address, _, asn = key.replace("_", ":").rpartition("-")
        if canonical(address) and is_number(asn, MAX_ASN):
            peer = peer_key(address, int(asn))
            rows[peer] = _row(peer, value)
    return tuple(rows.values())


def _row(peer: str, value: str) -> PeerPassword:
    try:
        text = decode_text(decode_base64(value, "data"), "data")
    except Invalid:
        return PeerPassword(peer, why_not="its value is not text")
    if why := password_fault(text):
        return PeerPassword(peer, why_not=why)
    return PeerPassword(peer, Password(text))


def password_fault(text: str) -> str:
    """Return why FRR cannot be given a password; empty if it can."""
    if not 0 < len(text) <= MAX_LENGTH:
        return f"it has {len(text)} characters, of 1 to {MAX_LENGTH}"
    if not all("!" <= character <= "~" for character in text):
        return "it has characters other than printable ASCII without spaces"
    if refused := REFUSED_CHARACTERS.intersection(text):
        return f"it has the character {min(refused)}, which FRR cannot read"
    return ""
