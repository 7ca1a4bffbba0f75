"""Keys of the gossip, and packets sealed with them: AES-256-GCM by OpenSSL, HKDF by hashlib.

Source: RFC 5116 (AEAD), RFC 5869 (HKDF)
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TypeAlias

from antrea.outside.gossip.aes_gcm import NONCE, TAG, cipher

Token: TypeAlias = Callable[[int], bytes]
"""Makes that many unpredictable bytes."""

__all__ = ["NONCE", "TAG", "Box", "Token", "derived"]


def derived(secret: bytes, salt: bytes, purpose: bytes, size: int) -> bytes:
    """HKDF with SHA-256; `size` <= 255 * 32."""
    extracted = hmac.digest(salt or bytes(32), secret, "sha256")
    out = block = b""
    while len(out) < size:
        block = hmac.digest(extracted, block + purpose + bytes([len(out) // 32 + 1]), "sha256")
        out += block
    return out[:size]


class Box:
    """Seals and opens under one key; a nonce is never used twice."""

    def __init__(self, key: bytes) -> None:
        """`key` has 32 bytes."""
        self._cipher = cipher(key)

    def seal(self, nonce: bytes, text: bytes, header: bytes) -> bytes:
        """`text` encrypted, with a tag over it and `header`."""
        return self._cipher.encrypt(nonce, text, header)

    def open(self, nonce: bytes, sealed: bytes, header: bytes) -> bytes | None:
        """The text, or None if it was not sealed like this under this key."""
        return self._cipher.decrypt(nonce, sealed, header)
