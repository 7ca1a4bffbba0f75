"""ExternalNode in the controller: an ExternalEntity for each interface, which policies and groups select by its labels.

parity: pkg/controller/externalnode/controller.go. An ExternalEntity of the same name with another owner is left as it
is; upstream overwrites it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd import external
from antrea.apis.generated_entity import GeneratedEntity
from antrea.engine import Unit
from antrea.facts.machine import AgentMachine
from antrea.features.external_node.machine import GATE, entity_name, external_node_row
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


def generated_entities(_: Facts, node: AgentMachine) -> Iterator[GeneratedEntity]:
    """Yield one entity for each interface; of several without a name only the first has one."""
    names: set[str] = set()
    for interface in node.interfaces:
        name = entity_name(node.name, interface.name)
        if name in names:
            continue
        names.add(name)
        yield GeneratedEntity(
            namespace=node.namespace,
            name=name,
            owner=node.name,
            uid=node.uid,
            labels=node.labels,
            endpoints=tuple((ip, interface.name) for ip in interface.ips),
        )


FEATURE = ControllerFeature(
    name="ExternalNode",
    watched=(Watched(external.MACHINES, external.ExternalNode, AgentMachine, external_node_row),),
    units=(Unit(AgentMachine, generated_entities),),
    gate=GATE,
)
FEATURES = (FEATURE,)
