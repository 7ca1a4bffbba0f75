"""Suricata of Debian 13 inline between two internal ports of a switch, in the network namespace of whoever starts it."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from netdev_switch import until

from antrea.features.network_policy.l7 import configuration
from antrea.features.network_policy.l7.rules import DEFAULT
from build import debian_root

if TYPE_CHECKING:
    from collections.abc import Mapping

INSIDE = "/run/engine"
ROOM = """
set -e
root=$1 own=$2; shift 2
mount -t tmpfs run "$root/run"; mkdir "$root/run/engine"; mount --bind "$own" "$root/run/engine"
mount --rbind /dev "$root/dev"; mount --rbind /proc "$root/proc"; mount --rbind /sys "$root/sys"
exec chroot "$root" "$@"
"""
"""In a mount namespace of its own. Arguments: the root, the directory of the engine's files, the command."""
COMMAND = ("suricata", "-c", f"{INSIDE}/suricata.yaml", "-l", INSIDE, "--init-errors-fatal")
RESETS = ("--reject-dev", configuration.TAPS[0])


class Engine:
    """Its files are in `directory`, which it has as /run/engine."""

    def __init__(self, rules: Mapping[int, str]) -> None:
        """`rules` are the rule files of its tenants."""
        self._root = debian_root.root(print, "suricata")
        self._room = tempfile.TemporaryDirectory(prefix="l7-")
        self.directory = Path(self._room.name)
        self._process: subprocess.Popen[bytes] | None = None
        (self.directory / "suricata.yaml").write_text(
            configuration.engine_file(INSIDE, rules, events=f"{INSIDE}/events.sock")
        )
        (self.directory / configuration.DEFAULT_RULES).write_text(DEFAULT)
        for tenant, text in rules.items():
            self.write(tenant, text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.kill()
        self._room.cleanup()

    def write(self, tenant: int, text: str) -> None:
        """The files of a tenant, which the engine reads when it starts or is told to."""
        place = str(self.directory)
        Path(configuration.rule_path(place, tenant)).write_text(text)
        Path(configuration.tenant_path(place, tenant)).write_text(configuration.tenant_file(INSIDE, tenant))

    def problems(self) -> str:
        """What it finds wrong with its files; nothing is captured."""
        done = subprocess.run(self._words(*COMMAND, "-T"), capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else self._log() + done.stderr

    def start(self) -> None:
        """Returns when its tenants are loaded and packets are judged."""
        (self.directory / configuration.SOCKET).unlink(missing_ok=True)
        self._process = subprocess.Popen(self._words(*COMMAND, "--af-packet", *RESETS))
        until(self._is_ready, "engine")

    def kill(self) -> None:
        """As a crash; by its own pid."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def reload(self, tenant: int) -> str:
        """The answer to an order to read the files of a tenant once more: OK or NOK."""
        where = configuration.tenant_path(INSIDE, tenant)
        order = {"command": "reload-tenant", "arguments": {"id": tenant, "filename": where}}
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(60)
            peer.connect(str(self.directory / configuration.SOCKET))
            assert self._told(peer, {"version": "0.2"})["return"] == "OK"
            return str(self._told(peer, order)["return"])

    def _told(self, peer: socket.socket, order: dict[str, Any]) -> dict[str, Any]:
        peer.sendall(json.dumps(order).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += peer.recv(4096) or b"\n"
        found: dict[str, Any] = json.loads(answer)
        return found

    def _words(self, *command: str) -> list[str]:
        alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", ROOM, "room")
        return [*alone, str(self._root), str(self.directory), *command]

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        return "Engine started" in self._log()

    def _log(self) -> str:
        file = self.directory / "suricata.log"
        return file.read_text() if file.exists() else ""
