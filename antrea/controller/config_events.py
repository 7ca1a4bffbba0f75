"""Events on the ConfigMap antrea-config: where `kubectl describe` shows what became of the controller's configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.core import ObjectReference
from antrea.errors import Refused, Unavailable
from antrea.outside import klog
from antrea.outside.reload import CONFIG_MAP

if TYPE_CHECKING:
    from antrea.outside.kube import Kube

log = klog.logger(__name__)


class ConfigMapVoice(NamedTuple):
    """Tells the user of the controller's configuration."""

    namespace: str

    async def warn(self, kube: Kube, reason: str, message: str) -> None:
        """A Warning on the ConfigMap; where the API server does not take it, the log says so."""
        name = os.environ.get("ANTREA_CONFIG_MAP_NAME", CONFIG_MAP)
        about = ObjectReference(api_version="v1", kind="ConfigMap", namespace=self.namespace, name=name)
        try:
            await kube.create_event(about, reason, message, warning=True, component="antrea-controller")
        except (Refused, Unavailable) as no:
            log.error("Failed to create an Event", error=no, reason=reason)
