"""A lab-owned userspace Open vSwitch, for switches whose ports carry VLANs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import namespace
from lab.process import launch, run, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lab.record import Record
    from lab.topology import Nic

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"


def _directory(record: Record) -> Path:
    return record.directory / "switch"


def vsctl(record: Record) -> str:
    """How to call ovs-vsctl for this switch."""
    return f"ovs-vsctl --timeout=20 --db=unix:{_directory(record)}/db.sock"


def start(record: Record, underlay: Path, bridges: Sequence[str]) -> None:
    """Both daemons, and one learning bridge per switch."""
    directory = _directory(record)
    directory.mkdir(exist_ok=True)
    run(["ovsdb-tool", "create", directory / "conf.db", SCHEMA], record=record)
    env = {"OVS_RUNDIR": str(directory), "OVS_LOGDIR": str(directory), "OVS_DBDIR": str(directory)}
    quiet = ["-vsyslog:off", "-vfile:off", "-vconsole:warn"]
    socket = directory / "db.sock"
    server: list[str | Path] = ["ovsdb-server", directory / "conf.db", f"--remote=punix:{socket}", *quiet]
    launch(record, "switch-ovsdb", namespace.inside(underlay, server), env=env)
    wait_for("the switch's database", socket.exists, seconds=60, step=0.02)
    # one handler and one revalidator: a lab has few cores
    few = "other_config:n-handler-threads=1 other_config:n-revalidator-threads=1"
    setup = [f"{vsctl(record)} --no-wait init -- set Open_vSwitch . {few}"]
    namespace.script(record, underlay, setup)
    daemon = ["ovs-vswitchd", f"unix:{socket}", *quiet]
    launch(record, "switch-vswitchd", namespace.inside(underlay, daemon), env=env)
    add = [
        f"{vsctl(record)} add-br {name} -- set bridge {name} datapath_type=netdev fail_mode=standalone"
        for name in bridges
    ]
    namespace.script(record, underlay, add)


def drop_ports(record: Record, ports: Sequence[str]) -> list[str]:
    """The shell lines that unplug those of `ports` which this switch has.

    In a transaction of their own: the switch would read on from a device that is gone, if the same transaction
    plugged one of the same name.
    """
    if not (_directory(record) / "db.sock").exists():
        return []
    return [f"{vsctl(record)} {' -- '.join(f'--if-exists del-port {port}' for port in ports)}"]


def add_port(record: Record, nic: Nic, port: str) -> str:
    """The shell line that plugs `port`."""
    line = f"{vsctl(record)} add-port {nic.switch} {port}"
    if nic.trunk:
        # untagged frames are VLAN 0 of the switch; OVS lets them pass a trunk that lists 0
        return f"{line} trunks={','.join(map(str, (0, *nic.trunk)))}"
    return f"{line} tag={nic.vlan}" if nic.vlan else line
