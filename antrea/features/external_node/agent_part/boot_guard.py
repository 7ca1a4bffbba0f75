"""Interfaces that are closed from the machine's boot until policies are enforced on them.

The file lists those that are connected; a unit of systemd passes it to nft before the network is up
(build/external-node/install.sh). The agent opens each interface once its policies are in the switch.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.features.external_node.boot_guard import SET, TABLE, guard_script
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.log import klog
from antrea.outside.nftables.libnftables import Nft, NftError, connect

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from antrea.config.agent_sections import BypassRule

log = klog.logger(__name__)
FILE: Final = Path("/var/lib/antrea/boot-guard.nft")
"""File, which outlives a reboot."""


class BootGuard:
    """Boot guard of this machine."""

    def __init__(self, rules: Sequence[BypassRule], nft: Nft | None = None, path: Path = FILE) -> None:
        self._rules, self._path, self._nft = rules, path, nft or connect()
        self._closed = self._read()

    @property
    def closed(self) -> frozenset[str]:
        """Names of interfaces that are closed since the boot."""
        return self._closed

    def keep(self, names: Collection[str]) -> None:
        """Close these at the next boot. Raises OSError."""
        wanted = guard_script(names, self._rules).encode() if names else b""
        try:
            current = self._path.read_bytes()
        except FileNotFoundError:
            current = b""
        if wanted == current:
            return
        if not wanted:
            self._path.unlink()
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        exchange(self._path, [wanted], sync=True)

    def open(self, name: str) -> None:
        """Open an interface; idempotent. Raises Unavailable."""
        if name not in self._closed:
            return
        left = self._closed - {name}
        commands = f'delete element {TABLE} {SET} {{ "{name}" }}' if left else f"delete table {TABLE}"
        try:
            self._nft.run(commands)
        except NftError as error:
            raise Unavailable(f"opening {name} after the boot: {error}") from error
        self._closed = left
        log.info("Interface is open: its policies are enforced since the boot", interface=name)

    def _read(self) -> frozenset[str]:
        try:
            text = self._nft.run(f"list set {TABLE} {SET}")
        except NftError:
            return frozenset()
        return frozenset(re.findall(r'"([^"]+)"', text))
