"""A private ovsdb-server and ovs-vswitchd (dummy datapath, no root) whose parts a test can kill and start again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_QUIET = ("-vconsole:off", "-vsyslog:off", "-vfile:off")


def listens(path: Path) -> bool:
    """Whether a connection to this Unix socket is taken: a daemon makes it some time before."""
    with socket.socket(socket.AF_UNIX) as peer:
        return peer.connect_ex(str(path)) == 0


def until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.01)


class OvsProcess:
    """Both daemons with everything they own under `directory`; they are stopped by the pids we started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "db.sock"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        subprocess.run(["ovsdb-tool", "create", directory / "conf.db", _SCHEMA], check=True)

    def start_database(self) -> None:
        self.socket.unlink(missing_ok=True)
        listen = f"--remote=punix:{self.socket}"
        self._start("ovsdb-server", str(self.directory / "conf.db"), listen)
        until(self.socket.exists, "socket of ovsdb-server")
        self.vsctl("--no-wait", "init")

    def start_switch(self, environ: Mapping[str, str] | None = None) -> None:
        """`environ`: variables besides those of this process."""
        dummy = ("--enable-dummy=override", "--disable-system", "--disable-system-route")
        self._start("ovs-vswitchd", f"unix:{self.socket}", *dummy, environ=environ)
        until((self.directory / "ovs-vswitchd.ctl").exists, "control socket of ovs-vswitchd")

    def kill(self, daemon: str) -> None:
        """As a crash: nothing is said to anybody, sockets stay behind."""
        process = self._daemons.pop(daemon)
        process.kill()
        process.wait()
        (self.directory / f"{daemon}.ctl").unlink(missing_ok=True)

    def pause(self, daemon: str) -> None:
        self._daemons[daemon].send_signal(signal.SIGSTOP)

    def resume(self, daemon: str) -> None:
        self._daemons[daemon].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for daemon in list(self._daemons):
            self.kill(daemon)

    def vsctl(self, *arguments: str) -> str:
        return self.run("ovs-vsctl", f"--db=unix:{self.socket}", "--retry", "--timeout=60", *arguments)

    def ofctl(self, command: str, bridge: str, *arguments: str) -> str:
        target = f"unix:{self.directory}/{bridge}.mgmt"
        return self.run("ovs-ofctl", "-O", "OpenFlow15", command, target, *arguments)

    def appctl(self, *arguments: str) -> str:
        return self.run("ovs-appctl", "-t", str(self.directory / "ovs-vswitchd.ctl"), *arguments)

    def run(self, *command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def _start(self, daemon: str, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        own = {f"OVS_{kind}DIR": str(self.directory) for kind in ("RUN", "LOG", "SYSCONF", "DB")}
        command = [daemon, *arguments, *_QUIET, f"--unixctl={self.directory}/{daemon}.ctl"]
        self._daemons[daemon] = subprocess.Popen(
            command, env={**os.environ, **own, **(environ or {})}, cwd=self.directory
        )


@contextlib.contextmanager
def ovs_process() -> Iterator[OvsProcess]:
    """A running switch without bridges. The directory's name is short because a unix socket's path must be."""
    directory = Path(tempfile.mkdtemp(prefix="ovs-"))
    switch = OvsProcess(directory)
    try:
        switch.start_database()
        switch.start_switch()
        yield switch
    finally:
        switch.stop()
        shutil.rmtree(directory)
