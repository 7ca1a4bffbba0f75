"""The UUID of the cluster, which antrea-controller makes: `clusterId` of records, unless the configuration names the cluster."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.kube.client import Kube
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.config.flow_aggregator import FlowAggregatorConfig

log = klog.logger(__name__)

CONFIG_MAP, KEY = "antrea-cluster-identity", "uuid"
NAMESPACE_VARIABLE: Final = "ANTREA_NAMESPACE"
"""Environment variable with the Namespace of antrea-controller."""
TIMEOUT: Final = 2.0
"""Seconds for which the start of the program waits."""
RETRY_SECONDS: Final = 5.0


class ClusterIdentity:
    """Read once, since it never changes."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig, self._uuid = kubeconfig, ""
        self.is_settled = False
        """Whether it has been read, or there is no cluster to ask."""

    def named(self, config: FlowAggregatorConfig) -> FlowAggregatorConfig:
        """The same with the name that records have."""
        return msgspec.structs.replace(config, cluster_id=config.cluster_id or self._uuid)

    async def settle(self, seconds: float = TIMEOUT) -> None:
        """Return when it is settled, or after these seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self.read()
        except TimeoutError:
            log.warning("Sending records without clusterId until the cluster has one", configMap=CONFIG_MAP)

    async def read(self) -> None:
        """Return once it is settled."""
        try:
            kube = Kube.connect(self._kubeconfig)
        except Invalid as error:
            log.v(2).info("Found no cluster to read clusterId of", err=str(error))
        else:
            async with kube:
                self._uuid = await _uuid_of(kube)
            log.info("Read the cluster identity", uuid=self._uuid)
        self.is_settled = True


async def _uuid_of(kube: Kube) -> str:
    """Tries until there is one."""
    namespace = os.environ.get(NAMESPACE_VARIABLE) or "kube-system"
    said = ""
    while True:
        why = ""
        try:
            config_map = await kube.get(f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}", ConfigMap)
            if config_map and (uuid := config_map.data.get(KEY)):
                return uuid
        except (Refused, Unavailable) as error:
            why = str(error)
        if why != said:
            log.warning("Failed to read the cluster identity", configMap=CONFIG_MAP, err=why)
        said = why
        await asyncio.sleep(RETRY_SECONDS)
