"""PEM with words between its certificates, as `openssl x509 -text` writes them, in any script."""

from __future__ import annotations

from pathlib import Path

BEYOND_ASCII = "backslashreplace"
"""Replacement of other characters: they are in comments, or the block that has them is refused."""


def ascii_pem(text: str) -> str:
    """Return the PEM without other characters than ASCII's, which Python's ssl refuses with a TypeError."""
    return text.encode("ascii", BEYOND_ASCII).decode("ascii")


def decode_pem(data: bytes) -> str:
    """Return the PEM of a Secret or a file."""
    return data.decode("ascii", BEYOND_ASCII)


def read_pem(path: str | Path) -> str:
    """Return the PEM of a file. Raises OSError."""
    return decode_pem(Path(path).read_bytes())
