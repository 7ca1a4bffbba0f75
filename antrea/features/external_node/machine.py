"""Rows of ExternalNodes, and the names of the ExternalEntities of their interfaces.

parity: pkg/util/externalnode/externalnode.go GenExternalEntityName
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from antrea.facts.machine import AgentMachine, MachineInterface
from antrea.features.framework.address import canonical

if TYPE_CHECKING:
    from antrea.apis.crd import external

GATE = "ExternalNode"
HASH_LENGTH = 5


def external_node_row(stored: external.ExternalNode) -> AgentMachine:
    """Make the row; an invalid address counts as none: the schema of the CRD refuses it."""
    meta = stored.metadata
    interfaces = (
        MachineInterface(interface.name, tuple(filter(None, (canonical(ip) for ip in interface.ips))))
        for interface in stored.spec.interfaces
    )
    labels = tuple(sorted(meta.labels.items()))
    return AgentMachine(meta.namespace, meta.name, meta.uid, labels, tuple(interfaces))


def entity_name(node: str, interface: str) -> str:
    """Return the name of the ExternalEntity of an interface; one without a name has that of the ExternalNode."""
    if not interface:
        return node
    digest = hashlib.sha1(interface.encode(), usedforsecurity=False).hexdigest()
    return f"{node}-{digest[:HASH_LENGTH]}"
