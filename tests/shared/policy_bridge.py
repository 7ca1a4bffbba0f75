"""The bridge of a private OVS in which random policies are enforced and packets traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policy_switch import Switch, ports

from tests.ovs.ovs_process import until

if TYPE_CHECKING:
    from tests.ovs.ovs_process import OvsProcess


def policy_bridge(ovs: OvsProcess) -> Switch:
    """Create br-int with the ports by which packets of random clusters arrive."""
    settings = ("datapath_type=dummy", "fail_mode=secure", "protocols=OpenFlow10,OpenFlow15")
    ovs.vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", *settings)
    until((ovs.directory / "br-int.mgmt").exists, "management socket of br-int")
    for name, number in ports().items():
        interface = ("set", "interface", name, "type=dummy", f"ofport_request={number}")
        ovs.vsctl("add-port", "br-int", name, "--", *interface)
    return Switch(ovs.directory)
