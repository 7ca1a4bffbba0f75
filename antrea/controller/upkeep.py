"""What the computing process keeps true in the cluster so that the front is found and trusted: certificate, CA, default Tiers;
the key of agents' gossip; and the cluster's identity."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.controller.certificates import PROVIDED, SELF_SIGNED, Provided, SelfSigned
from antrea.controller.cluster_identity import keep_identity
from antrea.controller.gossip_keys import GossipKeys
from antrea.controller.tiers import create_default_tiers
from antrea.outside.ca_publisher import CaPublisher

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.outside.kube import Kube
    from antrea.outside.lead import Lead


def served_files(*, self_signed: bool) -> tuple[Path, Path | None]:
    """Certificate and key that the front serves; no key: the certificate's file has it."""
    return (SELF_SIGNED, None) if self_signed else (PROVIDED / "tls.crt", PROVIDED / "tls.key")


async def upkeep(
    kube: Kube, lead: Lead, namespace: str, *, self_signed: bool, tiers: bool, directory: Path | None = None
) -> None:
    """Until cancelled. Raises Invalid if the user's certificate files do not come.

    `directory` holds the certificate files instead of the usual one.
    """
    publisher = CaPublisher(kube, namespace, lead)
    if self_signed:
        file = directory / SELF_SIGNED.name if directory else SELF_SIGNED
        source = SelfSigned(kube, publisher, namespace, file).run()
    else:
        source = Provided(publisher, directory or PROVIDED).run()
    async with asyncio.TaskGroup() as group:
        group.create_task(publisher.run(), name="CA")
        group.create_task(source, name="certificate")
        group.create_task(lead.meanwhile(GossipKeys(kube, namespace).run), name="key of gossip")
        identity = lead.meanwhile(lambda: keep_identity(kube, namespace))
        group.create_task(identity, name="identity of the cluster")
        if tiers:
            group.create_task(lead.meanwhile(lambda: create_default_tiers(kube)), name="default Tiers")
