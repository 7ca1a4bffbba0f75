"""Interfaces that are being connected, are connected, or are being given back: written before each step, read at start.

It lies where it is lost with the machine's memory: after a reboot interfaces are as the system configures them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.decoding import decode_msgpack
from antrea.errors import Invalid
from antrea.host.ovs_port import MachinePort
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, read_bytes, sealed, set_aside, unsealed
from antrea.outside.log import klog
from antrea.outside.netlink.interface_settings import InterfaceSettings

if TYPE_CHECKING:
    from pathlib import Path

log = klog.logger(__name__)
KIND = b"antrea external interfaces 1\n"


class ConnectedInterface(msgspec.Struct, frozen=True):
    """One interface by its name, and what it had when its network card was taken."""

    name: str
    settings: InterfaceSettings
    port: MachinePort
    index: int = 0
    """Index of the interface that was given the settings; 0 if none was yet."""


class InterfaceJournal:
    """Journal of all interfaces, in a file."""

    def __init__(self, path: Path) -> None:
        """Read the file; one that is damaged is set aside."""
        self._path = path
        self._records: dict[str, ConnectedInterface] = {}
        try:
            text = unsealed(KIND, read_bytes(path))
            records = decode_msgpack(text, tuple[ConnectedInterface, ...], str(path))
            self._records = {record.name: record for record in records}
        except FileNotFoundError:
            pass
        except (Damaged, OSError, Invalid) as error:
            log.error(
                "The journal of interfaces is damaged", path=path, err=str(error), aside=set_aside(path)
            )

    def get(self, name: str) -> ConnectedInterface | None:
        """Return the record of an interface; None if it is not connected."""
        return self._records.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names, sorted."""
        return tuple(sorted(self._records))

    def put(self, record: ConnectedInterface) -> None:
        """Write a record durably. Raises OSError."""
        self._records[record.name] = record
        self._write()

    def drop(self, name: str) -> None:
        """Remove a record. Raises OSError."""
        if self._records.pop(name, None) is not None:
            self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        body = msgspec.msgpack.encode(tuple(self._records.values()))
        exchange(self._path, sealed(KIND, [body]))
