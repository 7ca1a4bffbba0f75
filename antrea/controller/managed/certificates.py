"""Where the serving certificate comes from: a Secret that we fill ourselves, or files that the user provides.

This process publishes the CA; the API server process serves the certificate in the files. On a change both CAs are published
first, then the certificate is exchanged, then the old CA is removed: every client can verify the certificate at any
time. parity: pkg/apiserver/certificate/{certificate,selfsignedcert_provider}.go
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.kube import tls_secret
from antrea.outside.kube.secret import SecretData
from antrea.outside.log import klog
from antrea.outside.tls import authority
from antrea.outside.tls.pem import read_pem
from antrea.outside.tls.serving_certificate import LOOK_SECONDS

if TYPE_CHECKING:
    from antrea.outside.kube.ca_publisher import CaPublisher
    from antrea.outside.kube.client import Kube
    from antrea.outside.tls.server_context import Certificate

log = klog.logger(__name__)

SECRET = "antrea-controller-tls"  # noqa: S105 (its name)
SERVICE = "antrea"
SELF_SIGNED = Path("/var/run/antrea/antrea-controller-self-signed/antrea-controller.pem")
PROVIDED = Path("/var/run/antrea/antrea-controller-tls")
PROVIDED_SECONDS = 120.0
"""Timeout for user-provided files: cert-manager fills the Secret after the Pod is made."""
LOOK_AT_AGE_SECONDS = 3600.0
RETRY_SECONDS = 2.0
OTHERS_SECONDS = 30.0
"""Timeout for other replicas to serve a new certificate."""
SETTLE_SECONDS = 60.0
"""Maximum time for which publishing a new CA holds its certificate back: an old one must not be served for ever."""


class SelfSigned:
    """Keeps `file` with the pair of the Secret, which it fills when it is empty, gone, unusable, about to expire or yet to begin."""

    def __init__(self, kube: Kube, publisher: CaPublisher, namespace: str, file: Path = SELF_SIGNED) -> None:
        self._kube = kube
        self._publisher = publisher
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._names = (SERVICE, f"{SERVICE}.{namespace}.svc", "localhost")
        self._file = file
        self._now: Certificate | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        looked = asyncio.Event()
        self._publisher.lead.listeners.append(looked.set)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(looked))
            while True:
                try:
                    await self._sync()
                except (Refused, Unavailable) as error:
                    log.warning("Failed to save the serving certificate in its Secret", err=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AT_AGE_SECONDS):
                        await looked.wait()
                looked.clear()

    async def _watch(self, looked: asyncio.Event) -> None:
        query = {"fieldSelector": f"metadata.name={SECRET}"}
        async for _ in self._kube.watch(self._secrets, SecretData, query):
            looked.set()

    async def _sync(self) -> None:
        """Take the Secret's pair; the leader fills it. Raises Refused, also when another replica was faster; Unavailable."""
        secret = await self._kube.get(f"{self._secrets}/{SECRET}", SecretData)
        pair = tls_secret.pair_of(secret) if secret else None
        leads = self._publisher.lead.leads()
        if leads and (pair is None or not await asyncio.to_thread(tls_secret.lasts, pair)):
            pair = await asyncio.to_thread(authority.make, self._names, ("127.0.0.1", "::1"))
            await tls_secret.save(self._kube, f"{self._secrets}/{SECRET}", secret, pair, {"app": "antrea"})
        if pair is not None and pair != self._now:
            await self._exchange(pair)

    async def _exchange(self, pair: Certificate) -> None:
        before, self._now = self._now, pair
        if before is not None:
            both = pair.certificate_pem + before.certificate_pem
            self._publisher.trust(both, new=pair.certificate_pem)
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._publisher.settled()
            except TimeoutError:
                log.warning(
                    "The new CA is not published everywhere; clients without it cannot verify the serving certificate"
                )
        await asyncio.to_thread(write_pair, self._file, pair)
        if before is not None:
            # the front has looked at the file by then, and so have those of other replicas, which hear of it later
            await asyncio.sleep(OTHERS_SECONDS if self._publisher.lead.elected else 3 * LOOK_SECONDS)
        self._publisher.trust(pair.certificate_pem)


class Provided:
    """Publishes `ca.crt` of the user's files; the front serves their `tls.crt` and `tls.key`."""

    def __init__(self, publisher: CaPublisher, directory: Path = PROVIDED) -> None:
        self._publisher = publisher
        self._directory = directory

    async def run(self) -> None:
        """Run until cancelled. Raises Invalid if the files are not provided in time."""
        await provided(self._directory)
        while True:
            with contextlib.suppress(OSError):
                self._publisher.trust(read_pem(self._directory / "ca.crt"))
            await asyncio.sleep(LOOK_SECONDS)


async def provided(directory: Path) -> None:
    """Returns when the user's files are there. Raises Invalid if they do not come."""
    files = [directory / name for name in ("ca.crt", "tls.crt", "tls.key")]
    deadline = time.monotonic() + PROVIDED_SECONDS
    while missing := [file.name for file in files if not file.is_file()]:
        if time.monotonic() > deadline:
            raise Invalid("selfSignedCert", f"is false, but {directory} lacks {', '.join(missing)}")
        await asyncio.sleep(LOOK_SECONDS)


def write_pair(file: Path, pair: Certificate) -> None:
    """Key and certificates in one file that only its owner reads, exchanged at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(pair.certificate_pem + pair.key_pem)
    fresh.replace(file)
