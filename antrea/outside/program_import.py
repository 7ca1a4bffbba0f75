"""How a program that runs for long imports its modules."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOTS = "SSL_CERT_FILE"


@contextmanager
def program_import() -> Iterator[None]:
    """Import without what costs time and memory and is of no use.

    Garbage collections find nothing in modules and take a seventh of the time; modules stay, so that later ones need not look
    at them. aiohttp reads the system's root certificates twice when it is imported, for connections that name no other: ours
    all name theirs, and what would not is refused.
    """
    roots = os.environ.get(_ROOTS)
    os.environ[_ROOTS] = os.devnull
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if roots is None:
            del os.environ[_ROOTS]
        else:
            os.environ[_ROOTS] = roots
