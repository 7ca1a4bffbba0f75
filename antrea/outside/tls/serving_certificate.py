"""The certificate of a server that is replaced while it serves: new connections get the new one, established ones continue."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING

from antrea.errors import Invalid, Unavailable
from antrea.outside.log import klog
from antrea.outside.tls.pem import read_pem
from antrea.outside.tls.server_context import Certificate, load_pair

if TYPE_CHECKING:
    from pathlib import Path

log = klog.logger(__name__)
FIRST_SECONDS = 0.1
"""Between looks until there is a certificate, for which others wait."""
LOOK_SECONDS = 1.0
"""Between looks at the files; a file system watch would miss kubelet's exchange of whole directories."""


class ServingCertificate:
    """Lets `context` present what is in the files: one file with everything, or a certificate chain and its key.

    A context keeps one pair for each type of key: one that was to be replaced is presented to clients that prefer its type.
    So each pair has a context of its own, which connections are handed to while their handshake begins.
    """

    def __init__(self, context: ssl.SSLContext, certificate: Path, key: Path | None = None) -> None:
        self._context = context
        self._certificate = certificate
        self._key = key
        self._loaded: Certificate | None = None
        self._refused: Certificate | None = None
        self._presented: ssl.SSLContext | None = None
        self._trusted: dict[str, int] = {}
        """Numbers of CAs in `context` whose certificates of clients `_presented` admits, too."""
        context.sni_callback = self._choose

    async def ready(self, seconds: float) -> None:
        """Wait for files that make a certificate. Raises Unavailable if there are none in time."""
        deadline = time.monotonic() + seconds
        while not self.load():
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.lacks} after {seconds:g} s")
            await asyncio.sleep(FIRST_SECONDS)

    @property
    def lacks(self) -> str:
        """Why the context has no certificate of the files yet; empty: it has one."""
        return "" if self._loaded else f"no serving certificate in {self._certificate}"

    async def run(self) -> None:
        """Follow the files, until cancelled. An unusable one is logged once, and the last valid one stays."""
        while True:
            await asyncio.sleep(LOOK_SECONDS if self._loaded else FIRST_SECONDS)
            self.load()

    def load(self) -> bool:
        """Load the files; returns whether a certificate is loaded."""
        try:
            pair = self._read()
        except OSError:
            return self._loaded is not None
        if pair in (self._loaded, self._refused):
            return self._loaded is not None
        try:
            self._present(pair)
        except Invalid as error:
            log.error("Failed to load the serving certificate", file=str(self._certificate), err=str(error))
            self._refused = pair
            return self._loaded is not None
        log.info("Loaded serving certificate", file=str(self._certificate))
        self._loaded, self._refused = pair, None
        return True

    def _present(self, pair: Certificate) -> None:
        """Raises Invalid."""
        presented = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # those of TLS 1.3 are the library's in both
        presented.set_ciphers(":".join(row["name"] for row in self._context.get_ciphers()))
        load_pair(presented, pair)
        self._trusted = self._context.cert_store_stats()
        for authority in self._context.get_ca_certs(binary_form=True):
            presented.load_verify_locations(cadata=authority)
        self._presented = presented

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._loaded and self._context.cert_store_stats() != self._trusted:
            self._present(self._loaded)
        if self._presented:
            connection.context = self._presented

    def _read(self) -> Certificate:
        return Certificate(read_pem(self._certificate), read_pem(self._key) if self._key else "")
