"""Events on this agent's Node: where `kubectl describe node` shows what its user has to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.core import ObjectReference
from antrea.errors import Refused, Unavailable
from antrea.outside import klog

if TYPE_CHECKING:
    from antrea.outside.kube import Kube

log = klog.logger(__name__)


async def warn(kube: Kube, node: str, reason: str, message: str) -> None:
    """Make a Warning on the Node; where the API server does not take it, the log says so."""
    # parity: kubelet's own Events name the Node by its name in place of its uid
    about = ObjectReference(api_version="v1", kind="Node", name=node, uid=node)
    try:
        await kube.create_event(about, reason, message, warning=True, host=node)
    except (Refused, Unavailable) as no:
        log.error("Failed to create an Event", error=no, reason=reason)


class NodeVoice(NamedTuple):
    """Tells the user of this agent's configuration."""

    name: str

    async def warn(self, kube: Kube, reason: str, message: str) -> None:
        """A Warning on the Node."""
        await warn(kube, self.name, reason, message)
