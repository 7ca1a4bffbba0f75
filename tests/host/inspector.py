"""Suricata of Debian 13 with the files of examples/traffic-control, in the network namespace of whoever starts it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from netdev_switch import until
from suricata_engine import ROOM

from build import debian_root

EXAMPLES = Path(__file__).parents[2] / "examples/traffic-control"
INSIDE = "/run/suricata"


class Inspector:
    """Runs while the block lasts, with the configuration of that name."""

    def __init__(self, name: str, *, action: str = "alert") -> None:
        """`action` takes the place of `alert` in the rules."""
        self._root = debian_root.root(print, "suricata")
        self._room = tempfile.TemporaryDirectory(prefix="ids-")
        self._folder = Path(self._room.name)
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copy(EXAMPLES / f"{name}.yaml", self._folder / "suricata.yaml")
        rules = (EXAMPLES / "local.rules").read_text()
        (self._folder / "local.rules").write_text(rules.replace("alert", action, 1))

    def __enter__(self) -> Self:
        alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
        room = ROOM.replace("run/engine", INSIDE.removeprefix("/"))
        command = (
            "suricata",
            "-c",
            f"{INSIDE}/suricata.yaml",
            "-l",
            INSIDE,
            "--af-packet",
            "--init-errors-fatal",
        )
        words = [*alone, room, "room", str(self._root), str(self._folder), *command]
        self._process = subprocess.Popen(words)
        until(self._is_ready, "Suricata")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._room.cleanup()

    def alerts(self) -> list[dict[str, Any]]:
        """In the order of its log."""
        file = self._folder / "eve.json"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        events = (json.loads(line) for line in lines if line.endswith("\n"))
        return [one for one in events if one["event_type"] == "alert"]

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        return "Engine started" in self._log()

    def _log(self) -> str:
        file = self._folder / "suricata.log"
        return file.read_text() if file.exists() else ""
