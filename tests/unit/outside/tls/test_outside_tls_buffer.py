"""How much asyncio keeps for each TLS connection."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol
from typing import TYPE_CHECKING

from antrea.outside.tls import buffer as tls_buffer

if TYPE_CHECKING:
    import pytest


def test_the_smallest_buffer_that_is_asked_for_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", 256 << 10)
    for size, kept in ((32 << 10, 32 << 10), (8 << 10, 8 << 10), (64 << 10, 8 << 10)):
        tls_buffer.keep_small(size)
        assert SSLProtocol.max_size == kept
