"""Fresh network namespaces for one test: the test itself runs in one of them, and exactly those made are removed."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from build import debian_root

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Namespaces:
    """Makes namespaces named uniquely; `home` is the one that this thread, and every thread it starts, is in."""

    def __init__(self) -> None:
        self._prefix = f"antrea-t-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count()
        self.made: list[str] = []
        self.home = self.make()

    def make(self) -> str:
        """A new namespace with loopback up; returns its name (its path is `path(name)`)."""
        name = f"{self._prefix}-{next(self._numbers)}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.made.append(name)
        self.sh("ip link set lo up", name)
        return name

    def path(self, name: str) -> str:
        return f"/var/run/netns/{name}"

    def sh(self, command: str, name: str | None = None) -> str:
        """Output of a command in that namespace (by default in `home`); fails the test with its stderr."""
        done = self.run(command, name)
        assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
        return done.stdout

    def run(self, command: str, name: str | None = None) -> subprocess.CompletedProcess[str]:
        words = ["ip", "netns", "exec", name or self.home, "sh", "-c", command]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)

    @contextlib.contextmanager
    def serving(self, name: str, program: str) -> Iterator[None]:
        """A program in Python runs in that namespace, which prints `listening`."""
        words = ["ip", "netns", "exec", name, sys.executable, "-c", program]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == "listening\n"
                yield
            finally:
                server.kill()

    def remove(self) -> None:
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture(scope="session")
def suricata_root() -> Path:
    """The root of Debian with Suricata, made before a test is in namespaces from which there is no way to packages."""
    return debian_root.root(print, "suricata")


@pytest.fixture(scope="session")
def frr_root() -> Path:
    """The same with FRR."""
    return debian_root.root(print, "frr")


@pytest.fixture
def netns() -> Iterator[Namespaces]:
    if os.geteuid() != 0:
        assert not os.environ.get("CI"), "network namespaces need root"
        pytest.skip("network namespaces need root")
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    spaces = Namespaces()
    try:
        home = os.open(Path(spaces.path(spaces.home)), os.O_RDONLY | os.O_CLOEXEC)
        assert _libc.setns(home, _CLONE_NEWNET) == 0
        os.close(home)
        yield spaces
    finally:
        assert _libc.setns(before, _CLONE_NEWNET) == 0
        os.close(before)
        spaces.remove()
