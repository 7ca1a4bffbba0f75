"""Objects that the computing process maintains so that the serving process is found and trusted: certificate, CA, and the
cluster's identity.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from antrea.controller.managed.certificates import PROVIDED, SELF_SIGNED, Provided, SelfSigned
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.ca_publisher import CaPublisher
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.log import klog

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.outside.kube.client import Kube
    from antrea.outside.kube.leadership import Leadership

log = klog.logger(__name__)

CONFIG_MAP, KEY = "antrea-cluster-identity", "uuid"
RETRY_SECONDS = 5.0


# parity: pkg/clusteridentity/clusteridentity.go
async def keep_identity(kube: Kube, namespace: str) -> None:
    """Returns when the ConfigMap has one; tries until then. What stands there is never changed, not even if it is not a UUID."""
    while True:
        try:
            await _ensure(kube, f"/api/v1/namespaces/{namespace}/configmaps")
        except (Refused, Unavailable) as error:
            # also when somebody else was faster: theirs counts
            log.warning("Failed to create the cluster identity", configMap=CONFIG_MAP, err=str(error))
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


async def _ensure(kube: Kube, collection: str) -> None:
    config_map = await kube.get(f"{collection}/{CONFIG_MAP}", ConfigMap)
    if config_map is not None and (text := config_map.data.get(KEY)):
        try:
            uuid.UUID(text)
        except ValueError:
            log.error(
                "The cluster identity is not a UUID; correct or delete the ConfigMap",
                configMap=CONFIG_MAP,
                uuid=text,
            )
        return
    data = {KEY: str(uuid.uuid4())}
    if config_map is None:
        meta = {"name": CONFIG_MAP, "labels": {"app": "antrea"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        await kube.create_named(f"{collection}/{CONFIG_MAP}", body)
    else:
        version = {"resourceVersion": config_map.metadata.resource_version}
        await kube.patch(f"{collection}/{CONFIG_MAP}", {"metadata": version, "data": data})
    log.info("Created the cluster identity", configMap=CONFIG_MAP, uuid=data[KEY])


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
