"""Objects that the computing process maintains so that the serving process is found and trusted: certificate, CA, and the
cluster's identity."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.controller.managed.certificates import PROVIDED, SELF_SIGNED, Provided, SelfSigned
from antrea.controller.managed.cluster_identity import keep_identity
from antrea.outside.kube.ca_publisher import CaPublisher

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.outside.kube.client import Kube
    from antrea.outside.kube.leadership import Leadership


def served_files(*, self_signed: bool) -> tuple[Path, Path | None]:
    """Certificate and key that the front serves; no key: the certificate's file has it."""
    return (SELF_SIGNED, None) if self_signed else (PROVIDED / "tls.crt", PROVIDED / "tls.key")


async def keep_managed_objects(
    kube: Kube, lead: Leadership, namespace: str, *, self_signed: bool, directory: Path | None = None
) -> None:
    """Keep the managed objects until cancelled. Raises Invalid if the user's certificate files are not provided in time.

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
        identity = lead.run_while_leading(lambda: keep_identity(kube, namespace))
        group.create_task(identity, name="identity of the cluster")
