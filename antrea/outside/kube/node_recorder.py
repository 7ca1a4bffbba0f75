"""Events on this agent's Node, or on the ExternalNode of its machine."""

from __future__ import annotations

from antrea.apis.core import ObjectReference
from antrea.apis.crd.external import MACHINE_KIND
from antrea.apis.generated_entity import OWNER_API
from antrea.outside.kube.event_recorder import EventRecorder


def node_recorder(name: str) -> EventRecorder:
    """Make the recorder of Events about a Node; a name with a Namespace is that of an ExternalNode."""
    namespace, _, machine = name.rpartition("/")
    if namespace:
        about = ObjectReference(api_version=OWNER_API, kind=MACHINE_KIND, name=machine, namespace=namespace)
        return EventRecorder(about, "antrea-agent", machine)
    # parity: kubelet's own Events name the Node by its name in place of its uid
    return EventRecorder(
        ObjectReference(api_version="v1", kind="Node", name=name, uid=name), "antrea-agent", name
    )
