"""The certificates of the aggregator and of agents: an authority in a Secret, by which both know each other.

Agents read the authority from the ConfigMap and their certificate from the Secret, whose names are upstream's. A changed or deleted
Secret is corrected at once; a new authority ends every session of the old one, whose certificates are worth nothing then.
parity: pkg/flowaggregator/certificate/provider.go
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.kube import tls_secret
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.kube.secret import SecretData
from antrea.outside.log import klog
from antrea.outside.tls import authority
from antrea.outside.tls.pem import ascii_pem
from antrea.outside.tls.server_context import server_tls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antrea.outside.kube.client import Kube
    from antrea.outside.tls.server_context import Certificate

log = klog.logger(__name__)

AUTHORITY: Final = "flow-aggregator-ca-tls"
"""Secret with the authority and its key."""
CLIENT: Final = "flow-aggregator-client-tls"
"""Secret with the certificate by which agents are known."""
PUBLISHED: Final = "flow-aggregator-ca"
"""ConfigMap with the authority alone, as ca.crt."""
SERVICE: Final = "flow-aggregator"
LABELS: Final = {"app": SERVICE}
LOOK_SECONDS: Final = 3600.0
"""Between looks at their age."""
RETRY_SECONDS: Final = 2.0


class Certificates:
    """Gives the TLS of listeners to `present`, again whenever the authority changes."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        address: str,
        present: Callable[[ssl.SSLContext, ssl.SSLContext], Awaitable[None]],
    ) -> None:
        """`address` is one more by which agents reach the aggregator, a name or an IP; empty: none.

        `present` is given the TLS for agents, and that for clients without a certificate.
        """
        self._kube, self._present = kube, present
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._maps = f"/api/v1/namespaces/{namespace}/configmaps"
        self._names: tuple[str, ...] = (f"{SERVICE}.{namespace}.svc",)
        self._addresses: tuple[str, ...] = ()
        if address:
            try:
                self._addresses = (str(ip_address(address)),)
            except ValueError:
                self._names = (*self._names, address)
        self._authority = ""
        self.trouble = "there are no certificates yet"
        """Why the certificates are not as they should be; empty: they are."""

    async def run(self) -> None:
        """Run until cancelled."""
        news = asyncio.Event()
        watched = ((self._secrets, AUTHORITY), (self._secrets, CLIENT), (self._maps, PUBLISHED))
        async with asyncio.TaskGroup() as group:
            for path, name in watched:
                group.create_task(self._watch(path, name, news), name=name)
            while True:
                news.clear()
                try:
                    await self._sync()
                    self.trouble = ""
                except (Refused, Unavailable, Invalid) as error:
                    if str(error) != self.trouble:
                        log.warning("Failed to provide the certificates of the collector", err=str(error))
                    self.trouble = str(error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await news.wait()

    async def _watch(self, path: str, name: str, news: asyncio.Event) -> None:
        async for _ in self._kube.watch(path, SecretData, {"fieldSelector": f"metadata.name={name}"}):
            news.set()

    async def _sync(self) -> None:
        """Put right what is missing or old. Raises Refused, also when another replica was faster; Unavailable."""
        signer = await self._pair(AUTHORITY, lambda _: True, _new_authority)
        root = signer.certificate_pem
        await self._pair(
            CLIENT, lambda pair: authority.is_issued(pair.certificate_pem, root), lambda: _new_client(signer)
        )
        await self._publish(root)
        if root != self._authority:
            name = f"{SERVICE}-server-certificate@{int(time.time())}"
            certificate = await asyncio.to_thread(
                lambda: authority.issue(
                    signer, name, usage="server", names=self._names, addresses=self._addresses
                )
            )
            await self._present(mutual_tls(certificate, root), server_tls(certificate))
            self._authority = root
            log.info("Loaded the certificates of the collector", names=",".join(self._names))

    async def _pair(
        self, name: str, fits: Callable[[Certificate], bool], make: Callable[[], Certificate]
    ) -> Certificate:
        """The one in the Secret, or a new one that is saved there."""
        path = f"{self._secrets}/{name}"
        secret = await self._kube.get(path, SecretData)
        pair = tls_secret.pair_of(secret) if secret else None
        if pair is not None and await asyncio.to_thread(lambda: tls_secret.lasts(pair) and fits(pair)):
            return pair
        fresh = await asyncio.to_thread(make)
        await tls_secret.save(self._kube, path, secret, fresh, LABELS)
        return fresh

    async def _publish(self, root: str) -> None:
        path = f"{self._maps}/{PUBLISHED}"
        config_map = await self._kube.get(path, ConfigMap)
        if config_map is None:
            meta = {"name": PUBLISHED, "labels": LABELS}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"ca.crt": root}}
            await self._kube.create_named(path, body)
        elif config_map.data.get("ca.crt") != root:
            version = {"resourceVersion": config_map.metadata.resource_version}
            await self._kube.patch(path, {"metadata": version, "data": {"ca.crt": root}})


def _new_authority() -> Certificate:
    return authority.make_authority(f"{SERVICE}-ca@{int(time.time())}")


def _new_client(signer: Certificate) -> Certificate:
    return authority.issue(signer, f"{SERVICE}-client-certificate@{int(time.time())}", usage="client")


def mutual_tls(certificate: Certificate, root: str) -> ssl.SSLContext:
    """TLS 1.2 or later of a server that takes clients of the authority `root` alone. Raises Invalid."""
    context = server_tls(certificate)
    try:
        context.load_verify_locations(cadata=ascii_pem(root))
    except (ssl.SSLError, ValueError) as error:
        raise Invalid("certificate", f"that of the authority cannot be used: {error}") from error
    context.verify_mode = ssl.CERT_REQUIRED
    # a resumed session would go on after the authority was exchanged
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context
