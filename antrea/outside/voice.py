"""Events on one object: where `kubectl describe` shows what its user has to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.errors import Refused, Unavailable
from antrea.outside import klog

if TYPE_CHECKING:
    from antrea.apis.core import ObjectReference
    from antrea.outside.kube import Kube

log = klog.logger(__name__)


class Voice(NamedTuple):
    """A program that speaks about an object."""

    about: ObjectReference
    component: str
    host: str = ""
    """The Node of the program."""

    async def warn(self, kube: Kube, reason: str, message: str) -> None:
        """Make a Warning; where the API server does not take it, the log says so."""
        await self.tell(kube, reason, message, warning=True)

    async def tell(self, kube: Kube, reason: str, message: str, *, warning: bool = False) -> None:
        """Make an Event that is Normal, or a Warning; where the API server does not take it, the log says so."""
        try:
            await kube.create_event(
                self.about, reason, message, warning=warning, component=self.component, host=self.host
            )
        except (Refused, Unavailable) as no:
            log.error("Failed to create an Event", error=no, reason=reason)
