"""A Node that is thrown away and comes back as another machine under its old name and Pod CIDRs."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lab import (
    artifacts,
    certificates,
    cluster,
    control_plane,
    image_recipe,
    images,
    namespace,
    node,
    reference_cni,
    underlay,
)
from lab.topology import FABRIC, NODES

if TYPE_CHECKING:
    from lab.cluster import Lab
    from lab.topology import Machine

NETWORKS = {"eth0": NODES, "eth1": FABRIC}


def throw_away(lab: Lab, name: str) -> dict[str, Any]:
    """End the machine, its disk and its objects; the Node object as it was."""
    with lab.record.locked():
        node.power_off(lab.record, lab.topology.machine(name))
    old: dict[str, Any] = json.loads(lab.api.kubectl("get", "node", name, "-o", "json"))
    lab.api.kubectl("delete", "node", name)
    there = ("delete", "pods", "-A", f"--field-selector=spec.nodeName={name}", "--force", "--grace-period=0")
    lab.api.kubectl(*there)
    shutil.rmtree(node.directory(lab.record, name))
    return old


def bring(lab: Lab, old: dict[str, Any], host: int, serial: int) -> None:
    """A new machine with the name, labels and Pod CIDRs of `old`: its addresses have the number `host`, its MACs `serial`."""
    name = old["metadata"]["name"]
    machine = _machine(lab, name, host)
    machines = tuple(machine if one.name == name else one for one in lab.topology.machines)
    lab.topology = msgspec.structs.replace(lab.topology, machines=machines)
    addresses = tuple(machine.address("eth0", version) for version in lab.topology.versions)
    certificates.issue(_authority(lab), f"{name}-server", name, sans=(name, *addresses, "127.0.0.1"))
    fresh = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": old["metadata"]["labels"]},
        "spec": {key: old["spec"][key] for key in ("podCIDR", "podCIDRs")},
    }
    lab.api.kubectl("create", "-f", "-", stdin=json.dumps(fresh))
    with lab.record.locked():
        node.prepare(lab.record, lab.topology, machine, settings=lab.settings, supplies=_supplies())
        (node.etc(lab.record, name) / "machine-id").write_text(f"{serial:032x}\n")
        underlay.plug(lab.record, lab.topology, machine)
        for number, nic in enumerate(machine.nics):
            other = f"ip link set {nic.name} address 02:aa:00:00:{serial:02x}:{number:02x}"
            namespace.script(lab.record, namespace.path(lab.record, name), [other])
        node.power_on(lab.record, name)
        node.release(lab.record, name)
    control = namespace.path(lab.record, lab.topology.control_plane.name)
    namespace.script(lab.record, control, reference_cni.routes(lab.topology, cluster.pod_cidrs(lab)))


def _machine(lab: Lab, name: str, host: int) -> Machine:
    old, family = lab.topology.machine(name), lab.topology.family
    nics = tuple(
        msgspec.structs.replace(nic, addresses=NETWORKS[nic.name].pick(host, family)) for nic in old.nics
    )
    return msgspec.structs.replace(old, nics=nics)


def _authority(lab: Lab) -> certificates.Authority:
    """The lab's own, from its files."""
    directory = control_plane.pki(lab.record)
    key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
    return certificates.Authority(directory, "ca", key, certificate)


def _supplies() -> node.Supplies:
    """What the lab was made with, from the cache."""
    binaries = artifacts.binaries(print)
    wanted = [*image_recipe.standard(binaries, print), image_recipe.product(print)]
    return node.Supplies(binaries, images.prepare(print, wanted))
