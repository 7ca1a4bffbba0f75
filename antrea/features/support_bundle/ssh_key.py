"""Validation of an SSH public key in wire format: the algorithm's name, then its numbers.

Source: RFC 4253 section 6.6, RFC 5656 section 3.1, RFC 8709 section 4, OpenSSH PROTOCOL.u2f
"""

from __future__ import annotations

from antrea.decoding import decode_text
from antrea.errors import Invalid

_FIELDS = {
    "ssh-rsa": 2,
    "ssh-dss": 4,
    "ssh-ed25519": 1,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
"""Number of strings or numbers after the name; each is a length in 4 bytes and that many bytes."""


def fault(key: bytes) -> str:
    """Return why `key` is invalid; empty if it is valid."""
    try:
        name, rest = _take(key)
        algorithm = decode_text(name, "algorithm")
        if algorithm not in _FIELDS:
            return f"ssh: unknown key algorithm: {algorithm}"
        sizes = []
        for _ in range(_FIELDS[algorithm]):
            field, rest = _take(rest)
            sizes.append(len(field))
    except Invalid as error:
        return error.why
    except EOFError:
        return "ssh: short read"
    if algorithm == "ssh-ed25519" and sizes != [32]:
        return f"invalid size {sizes[0]} for Ed25519 public key"
    return "ssh: trailing junk in public key" if rest else ""


def _take(data: bytes) -> tuple[bytes, bytes]:
    """Return the first string of `data`, and the rest. Raises EOFError."""
    end = 4 + int.from_bytes(data[:4])
    if len(data) < max(end, 4):
        raise EOFError
    return data[4:end], data[end:]
