"""The two folders of an engine: `wanted` for its next start, `active` for the one that runs.

The container copies the first to the second before each start (build/image/run_l7_engine). So the second holds the rule files
that the running engine has loaded, at its start or by an order since; with a `.pending` file beside, whether it has is not known.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid
from antrea.features.network_policy.l7 import configuration
from antrea.features.network_policy.l7.rules import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class TenantFile(NamedTuple):
    """A tenant as the engine has it, or will have it."""

    rule: str
    version: str
    text: str
    """Content of the rule file; empty if it is unknown whether the engine has loaded it."""
    since: int = 0
    """When new connections of the rule got it, in ns since 1970."""


class EngineFiles:
    """Files below one folder, which the engine has at the same path."""

    def __init__(self, folder: Path) -> None:
        self.wanted, self.active = folder / "wanted", folder / "active"
        self.events = folder / "events.sock"
        self.socket = self.active / configuration.SOCKET
        self.log = self.active / "suricata.log"
        self._out_of_memory = folder / "out-of-memory"

    def want(self, tenants: Mapping[int, TenantFile]) -> None:
        """Write the files of the next start, by VLAN; without tenants the engine is not started again. Raises OSError."""
        main = self.wanted / "suricata.yaml"
        if not tenants:
            main.unlink(missing_ok=True)
            return
        fresh = self.wanted.with_name("fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True, mode=0o755)
        for vlan, tenant in tenants.items():
            self._tenant(fresh, vlan, tenant)
        (fresh / configuration.DEFAULT_RULES).write_text(DEFAULT)
        text = configuration.engine_file(str(self.active), tenants, events=str(self.events))
        (fresh / main.name).write_text(text)
        shutil.rmtree(self.wanted, ignore_errors=True)
        fresh.rename(self.wanted)

    def loaded(self) -> dict[int, TenantFile]:
        """Return what the running engine has read, by VLAN."""
        files: dict[int, TenantFile] = {}
        for path in self.active.glob("tenant-*.rules"):
            number = path.stem.removeprefix("tenant-")
            if number.isdigit():
                text = "" if self._pending(int(number)).exists() else path.read_text()
                files[int(number)] = self._described(int(number))._replace(text=text)
        return files

    def begin(self, vlan: int, tenant: TenantFile) -> str:
        """Write what the engine is to read; return the path of the tenant's file, for the order."""
        self._pending(vlan).touch()
        self._tenant(self.active, vlan, tenant)
        return configuration.tenant_path(str(self.active), vlan)

    def done(self, vlan: int) -> None:
        """Record that the engine has read it."""
        self._pending(vlan).unlink(missing_ok=True)

    def forget(self, vlan: int) -> None:
        """Record that the engine no longer has it."""
        where = str(self.active)
        self._description(self.active, vlan).unlink(missing_ok=True)
        for path in (configuration.tenant_path(where, vlan), configuration.rule_path(where, vlan)):
            if os.path.lexists(path):
                os.unlink(path)  # noqa: PTH108 (texts of the configuration)
        self.done(vlan)

    def is_started(self) -> bool:
        """Whether the engine that runs has loaded its tenants."""
        try:
            return "Engine started" in self.log.read_text(errors="replace")
        except OSError:
            return False

    def was_out_of_memory(self, seconds: float) -> bool:
        """Whether the kernel has ended an engine for want of memory within that time."""
        try:
            ended = float(self._out_of_memory.read_text())
        except (OSError, ValueError):
            return False
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ended < seconds

    def problem(self) -> str:
        """The last error in its log; empty if there is none."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line[:300] for line in reversed(lines) if "Error" in line), "")

    def _tenant(self, folder: Path, vlan: int, tenant: TenantFile) -> None:
        description = {"rule": tenant.rule, "version": tenant.version, "since": tenant.since}
        self._description(folder, vlan).write_bytes(msgspec.json.encode(description))
        (folder / f"tenant-{vlan}.rules").write_text(tenant.text)
        (folder / f"tenant-{vlan}.yaml").write_text(configuration.tenant_file(str(self.active), vlan))

    def _pending(self, vlan: int) -> Path:
        return self.active / f"tenant-{vlan}.pending"

    def _described(self, vlan: int) -> TenantFile:
        """Read the description; without a name for an agent that wrote none: no rule has it."""
        try:
            path = self._description(self.active, vlan)
            description = decode_json(path.read_bytes(), _Description, str(path))
        except (OSError, Invalid):
            return TenantFile("", "", "")
        return TenantFile(description.rule, description.version, "", description.since)

    def _description(self, folder: Path, vlan: int) -> Path:
        return folder / f"tenant-{vlan}.json"


class _Description(msgspec.Struct):
    """Description beside the rule file of a tenant."""

    rule: str
    version: str
    since: int
