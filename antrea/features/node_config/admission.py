"""Validation of VLANs in an AntreaNodeConfig.

parity: pkg/controller/antreanodeconfig/validate.go, pkg/util/vlan ParseSpec
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from antrea.apis.crd.node_config import AntreaNodeConfig
from antrea.errors import Invalid
from antrea.features.framework.admission import Webhook

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps

MAX_VLAN = 4094


def validate_node_config(_: Facts, review: Review[AntreaNodeConfig]) -> Steps:
    """Check the allowed VLANs. Raises Invalid."""
    network = review.new.spec.secondary_network
    for bridge_index, bridge in enumerate(network.ovs_bridges if network else ()):
        for index, interface in enumerate(bridge.physical_interfaces):
            path = (
                f"spec.secondaryNetwork.ovsBridges[{bridge_index}].physicalInterfaces[{index}].allowedVLANs"
            )
            for text in interface.allowed_vlans:
                if why := vlan_fault(text.strip()):
                    raise Invalid(path, f"is invalid: {why}")
    yield from ()


def vlan_fault(text: str) -> str:
    """Return why `text` is neither a VLAN nor a range of them; empty if it is."""
    first, dash, last = text.partition("-")
    names = ((first, "VLAN range start"), (last, "VLAN range end")) if dash else ((first, "VLAN ID"),)
    for number, name in names:
        if why := _number_fault(number):
            return f'invalid {name} "{number}": strconv.ParseUint: parsing "{number}": {why}'
    end = int(last or first)
    if int(first) > end:
        return f"VLAN range start {int(first)} is greater than end {end}"
    if end > MAX_VLAN:
        return f"VLAN ID {end} is greater than the maximum VLAN ID {MAX_VLAN}"
    return ""


def _number_fault(text: str) -> str:
    """Return the error of Go's ParseUint(text, 10, 16); empty if there is none."""
    if not re.fullmatch("[0-9]+", text):
        return "invalid syntax"
    digits = text.lstrip("0")
    return "value out of range" if len(digits) > 5 or int(digits or "0") > 0xFFFF else ""


WEBHOOKS = (
    Webhook(
        "antreanodeconfigvalidator.antrea.io", "/validate/antreanodeconfig", ("CREATE", "UPDATE"), "crd.antrea.io",
        ("v1alpha1",), "antreanodeconfigs", "Cluster", AntreaNodeConfig,
        f"allowedVLANs are numbers or ranges up to {MAX_VLAN}", validate=validate_node_config,
        gates=("AntreaNodeConfig",),
    ),
)  # fmt: skip
