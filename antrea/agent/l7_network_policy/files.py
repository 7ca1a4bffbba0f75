"""The two folders of an engine: `wanted` for its next start, `active` for the one that runs.

The container copies the first to the second before each start (build/image/run_l7_engine). So the second holds the rule files
that the running engine has loaded, at its start or by an order since; with a `.pending` file beside, whether it has is not known.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from antrea.features.network_policy.l7 import configuration
from antrea.features.network_policy.l7.rules import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class EngineFiles:
    """Below one folder, which the engine has at the same path."""

    def __init__(self, folder: Path) -> None:
        self.wanted, self.active = folder / "wanted", folder / "active"
        self.events = folder / "events.sock"
        self.socket = self.active / configuration.SOCKET
        self.log = self.active / "suricata.log"

    def want(self, tenants: Mapping[int, str]) -> None:
        """What it starts with next: rule files by VLAN; none at all: it is not started again. Raises OSError."""
        main = self.wanted / "suricata.yaml"
        if not tenants:
            main.unlink(missing_ok=True)
            return
        fresh = self.wanted.with_name("fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True, mode=0o755)
        for vlan, text in tenants.items():
            self._tenant(fresh, vlan, text)
        (fresh / configuration.DEFAULT_RULES).write_text(DEFAULT)
        text = configuration.engine_file(str(self.active), tenants, events=str(self.events))
        (fresh / main.name).write_text(text)
        shutil.rmtree(self.wanted, ignore_errors=True)
        fresh.rename(self.wanted)

    def loaded(self) -> dict[int, str]:
        """Rule files by VLAN that the engine that runs has read; empty for one that may have another."""
        found: dict[int, str] = {}
        for path in self.active.glob("tenant-*.rules"):
            number = path.stem.removeprefix("tenant-")
            if number.isdigit():
                found[int(number)] = "" if self._pending(int(number)).exists() else path.read_text()
        return found

    def begin(self, vlan: int, text: str) -> str:
        """Write what the engine is to read; returns the path of the tenant's file, for the order."""
        self._pending(vlan).touch()
        self._tenant(self.active, vlan, text)
        return configuration.tenant_path(str(self.active), vlan)

    def done(self, vlan: int) -> None:
        """The engine has read it."""
        self._pending(vlan).unlink(missing_ok=True)

    def forget(self, vlan: int) -> None:
        """The engine has it no more."""
        where = str(self.active)
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

    def problem(self) -> str:
        """The last error in its log; empty if there is none."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line[:300] for line in reversed(lines) if "Error" in line), "")

    def _tenant(self, folder: Path, vlan: int, text: str) -> None:
        (folder / f"tenant-{vlan}.rules").write_text(text)
        (folder / f"tenant-{vlan}.yaml").write_text(configuration.tenant_file(str(self.active), vlan))

    def _pending(self, vlan: int) -> Path:
        return self.active / f"tenant-{vlan}.pending"
