"""A private ovsdb-server and ovs-vswitchd with the userspace datapath, in the network namespace of whoever starts it, or in another."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
DATAPATH: Literal["system", "netdev"] = (
    "system" if os.environ.get("ANTREA_TEST_DATAPATH") == "system" else "netdev"
)
"""In user space; `system` where the kernel has openvswitch (docs/l7-network-policy.md)."""
TIMEOUT = float(os.environ.get("ANTREA_TEST_PATIENCE", "1"))
"""Times that deadlines are longer: for an emulated processor."""


def until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + seconds * TIMEOUT
    while not true():
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.01)


class NetdevSwitch:
    """Both daemons with everything they own under `directory`; they are stopped by the pids we started."""

    def __init__(self, netns: str = "") -> None:
        """`netns` is the name of a network namespace to run in."""
        self._within = ("ip", "netns", "exec", netns) if netns else ()
        self.directory = Path(tempfile.mkdtemp(prefix="ovs-"))
        self.socket = self.directory / "db.sock"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        subprocess.run(["ovsdb-tool", "create", self.directory / "conf.db", _SCHEMA], check=True)

    def start(self) -> None:
        self.start_database()
        self.vsctl("--no-wait", "init")
        threads = ("other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1")
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *threads)
        self.start_switch()

    def start_switch(self) -> None:
        self._start("ovs-vswitchd", f"unix:{self.socket}")
        until((self.directory / "ovs-vswitchd.ctl").exists, "control socket of ovs-vswitchd")

    def start_database(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._start("ovsdb-server", str(self.directory / "conf.db"), f"--remote=punix:{self.socket}")
        until(self.socket.exists, "socket of ovsdb-server")

    def add_bridge(self, name: str) -> None:
        """Secure: what no flow forwards is dropped."""
        settings = (f"datapath_type={DATAPATH}", "fail_mode=secure", "protocols=OpenFlow10,OpenFlow15")
        self.vsctl("add-br", name, "--", "set", "bridge", name, *settings)

    def pid(self, daemon: str) -> int:
        return self._daemons[daemon].pid

    def kill(self, daemon: str) -> None:
        """As a crash: nothing is said to anybody, sockets stay behind."""
        process = self._daemons.pop(daemon)
        process.kill()
        process.wait()
        (self.directory / f"{daemon}.ctl").unlink(missing_ok=True)

    def stop(self) -> None:
        for daemon in list(self._daemons):
            self.kill(daemon)
        shutil.rmtree(self.directory)

    def vsctl(self, *arguments: str) -> str:
        return self._output("ovs-vsctl", f"--db=unix:{self.socket}", "--retry", "--timeout=60", *arguments)

    def ofctl(self, command: str, bridge: str, *arguments: str) -> str:
        return self._output(
            "ovs-ofctl", "-O", "OpenFlow15", command, f"unix:{self.directory}/{bridge}.mgmt", *arguments
        )

    def appctl(self, *arguments: str) -> str:
        return self._output("ovs-appctl", "-t", str(self.directory / "ovs-vswitchd.ctl"), *arguments)

    def revalidate(self) -> None:
        """Empty the datapath's cache: for some ms after a change, on a busy machine for more, packets go by the flows of before.

        To wait for a pass of the revalidators is not enough: the one that ends may have begun before the change.
        """
        self.appctl("revalidator/purge")

    def ports(self, bridge: str) -> set[str]:
        return set(self.vsctl("list-ports", bridge).split())

    def _output(self, *command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def _start(self, daemon: str, *arguments: str) -> None:
        own = {f"OVS_{kind}DIR": str(self.directory) for kind in ("RUN", "LOG", "SYSCONF", "DB")}
        quiet = ("-vconsole:off", "-vsyslog:off", "-vfile:off", f"--unixctl={self.directory}/{daemon}.ctl")
        self._daemons[daemon] = subprocess.Popen(
            [*self._within, daemon, *arguments, *quiet], env={**os.environ, **own}, cwd=self.directory
        )
