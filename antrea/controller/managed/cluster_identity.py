"""Create a UUID of the cluster, once, in a ConfigMap: tools that collect from several clusters distinguish them by it.

parity: pkg/clusteridentity/clusteridentity.go
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from antrea.errors import Refused, Unavailable
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

CONFIG_MAP, KEY = "antrea-cluster-identity", "uuid"
RETRY_SECONDS = 5.0


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
