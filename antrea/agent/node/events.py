"""Events on this agent's Node."""

from __future__ import annotations

from antrea.apis.core import ObjectReference
from antrea.outside.kube.event_recorder import EventRecorder


def node_recorder(name: str) -> EventRecorder:
    """The agent about its Node."""
    # parity: kubelet's own Events name the Node by its name in place of its uid
    return EventRecorder(
        ObjectReference(api_version="v1", kind="Node", name=name, uid=name), "antrea-agent", name
    )
