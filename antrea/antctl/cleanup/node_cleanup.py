"""State that an uninstalled agent leaves on a Node, in the order in which it can be removed without a loss of the Node's network.

The CNI configuration is first, so that the container runtime asks the plugin no more. The transport interface has its addresses
back before bridges, tables and routes are removed. The database of the switch, which records them, is last: a removal that
was interrupted can be repeated.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.antctl.cleanup.card import is_held, remove_device, return_card
from antrea.antctl.cleanup.switch_record import read_record
from antrea.antctl.doctor.checks import OUR_TABLES
from antrea.antctl.failure import Failure
from antrea.host.link import EXTERNAL_DEVICE, EXTERNAL_PREFIX
from antrea.host.physical_bridge import PHYSICAL_BRIDGE
from antrea.host.route import Route
from antrea.outside.netlink import held_address, kept_route
from antrea.outside.netlink import host_message as message
from antrea.outside.netlink.entry import KINDS, is_gone, routes_by
from antrea.outside.netlink.iproute2 import run, run_nft
from antrea.outside.netlink.socket import Rtnl
from antrea.outside.nftables.dump import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.antctl.cleanup.switch_record import SwitchRecord

CONFLIST: Final = "10-antrea.conflist"
PLUGIN: Final = "antrea"
DATAPATH: Final = "ovs-system"
"""Device of the kernel's datapath, which all bridges of the Node share."""
SWITCH: Final = "ovs-vswitchd"
FAMILIES: Final = ("inet", "netdev", "ip", "ip6", "arp")
DEVICES: Final = ("antrea-ingress0", EXTERNAL_DEVICE, held_address.DEVICE)
PREFIXES: Final = (EXTERNAL_PREFIX, "antrea-l7-")
SWITCH_DEVICES: Final = ("genev_sys_", "vxlan_sys_", "gre_sys", "ovs-netdev")
"""Prefixes of devices that a killed ovs-vswitchd leaves, and on the kernel datapath one that ends as well."""
SOCKET_SECONDS: Final = 2.0


class Folders(NamedTuple):
    """Folders of the Node as this process sees them."""

    cni_config: Path = Path("/host/etc/cni/net.d")
    cni_bin: Path = Path("/host/opt/cni/bin")
    run: Path = Path("/host/var/run/antrea")
    lib: Path = Path("/host/var/lib/antrea")
    log: Path = Path("/host/var/log/antrea")
    processes: Path = Path("/proc")


class Step(NamedTuple):
    """Something that is left, and its removal, which raises OSError, SubprocessError or Unavailable."""

    subject: str
    remove: Callable[[], object] | None = None
    """None: it stays."""
    why: str = ""
    """Why it stays."""


def steps(folders: Folders, *, logs: bool = False) -> Iterator[Step]:
    """Yield what is left, each only after what came before it was removed; with `logs` the log files as well.

    Raises Failure while Open vSwitch of Antrea runs; OSError, SubprocessError, Unavailable, Invalid.
    """
    if is_switch_there(folders):
        raise Failure("Open vSwitch of the agent's Pod still runs on this Node: wait until the Pod has ended")
    record = read_record(folders.run / "openvswitch/conf.db")
    yield from _files("CNI configuration", folders.cni_config / CONFLIST)
    yield from _files("CNI plugin", folders.cni_bin / PLUGIN)
    yield from _card(record)
    yield from _tables(record)
    yield from _entries(record)
    yield from _devices(folders, record)
    yield from _files("state files", folders.lib)
    if logs:
        yield from _files("logs", folders.log)
    yield from _files("state files", folders.run)


def is_switch_there(folders: Folders) -> bool:
    """Whether a database server of Antrea's switch answers on this Node. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SOCKET_SECONDS)
        try:
            connection.connect(str(folders.run / "openvswitch/db.sock"))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def _files(what: str, path: Path) -> Iterator[Step]:
    """Yield a file, or a folder with its contents, if it exists."""
    shown = f"/{path.relative_to('/host')}" if path.is_relative_to("/host") else str(path)
    if path.is_dir() and not path.is_symlink():
        yield Step(f"{what} {shown}", partial(shutil.rmtree, path))
    elif path.is_symlink() or path.exists():
        yield Step(f"{what} {shown}", path.unlink)


def _card(record: SwitchRecord) -> Iterator[Step]:
    card = record.card
    if card and is_held(card):
        addresses = ", ".join(card.addresses)
        subject = f"bridge {PHYSICAL_BRIDGE}, whose addresses {addresses} {card.interface} gets back"
        yield Step(subject, partial(return_card, card))


def _tables(record: SwitchRecord) -> Iterator[Step]:
    """Yield nftables tables; those that rules of routing refer to go with the rules."""
    if kept_route.TABLE in tables("inet"):
        yield Step("kept routes to Services", partial(kept_route.give_up, record.gateway))
    if held_address.TABLE in tables("inet"):
        yield Step("held addresses of Services", held_address.give_up)
    for family in FAMILIES:
        for name in sorted(tables(family).intersection(OUR_TABLES)):
            table = f"{family} {name}"
            yield Step(f"nftables table {table}", partial(run_nft, f"table {table}\ndelete table {table}\n"))


def _entries(record: SwitchRecord) -> Iterator[Step]:
    """Yield rules, routes, neighbors and addresses with Antrea's protocol numbers, and other routes to Pods by the gateway."""
    for kind, operations in reversed(list(KINDS.items())):
        with Rtnl() as kernel:
            entries = list(operations.standing(kernel))
        if entries:
            yield Step(f"{len(entries)} x {kind.__name__}", partial(_drop, operations.drop, entries))
    with Rtnl() as kernel:
        others = list(routes_by(kernel, record.gateway))
    if others:
        yield Step(f"{len(others)} x other Route", partial(_drop, KINDS[Route].drop, others))


def _drop(drop: Callable[[Rtnl, Any], None], entries: list[Any]) -> None:
    with Rtnl() as kernel:
        for entry in entries:
            try:
                drop(kernel, entry)
            except OSError as error:
                if not is_gone(error):
                    raise


def _devices(folders: Folders, record: SwitchRecord) -> Iterator[Step]:
    """Yield the kernel's datapath with all its ports, and devices of the agent and of Pods."""
    owner = _process(folders.processes, SWITCH)
    if DATAPATH in _names():
        if owner:
            yield Step(f"datapath {DATAPATH}", why=f"another {SWITCH} (process {owner}) runs on this Node")
        else:
            yield Step(f"datapath {DATAPATH}", partial(run, "ovs-dpctl", "del-dp", f"system@{DATAPATH}"))
    known = {*record.internal, record.gateway, *DEVICES} - {PHYSICAL_BRIDGE}
    prefixes = PREFIXES if owner else (*PREFIXES, *SWITCH_DEVICES)
    for name in sorted(name for name in _names() if name in known or name.startswith(prefixes)):
        yield Step(f"device {name}", partial(_remove_device, name))
    for name in sorted(_names().intersection(record.pods)):
        yield Step(f"device {name} of a Pod, which has to be created anew", partial(_remove_device, name))


def _names() -> set[str]:
    """Return the names of all devices."""
    with Rtnl() as kernel:
        return {message.device_of(reply).name for reply in kernel.ask(message.get_devices())}


def _remove_device(name: str) -> None:
    with Rtnl() as kernel:
        remove_device(kernel, name)


def _process(folder: Path, name: str) -> str:
    """Return the number of a process of this name; empty if there is none."""
    for file in folder.glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if file.read_text(errors="replace").strip() == name:
                return file.parent.name
    return ""
