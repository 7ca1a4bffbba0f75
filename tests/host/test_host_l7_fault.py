"""The L7 engine at the limit of its memory, and without room for its files: closed, named, and back when it has what it needs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from l7_container import EngineContainer
from l7_node import PUBLIC, PUBLIC_GET, SECRET, SECRET_GET, L7Node, node, running, stated, why
from netdev_switch import until

from antrea.features.l7_network_policy.agent_part.files import EngineFiles
from antrea.features.network_policy.l7.tenant import LoadedTenant
from lab import cgroup

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["node"]
LITTLE, PLENTY = 8 << 20, 1 << 32


pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("suricata_root")]
"""The root is made first, which takes minutes on a fresh machine."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of 4 MB, below /run, which the root of the engine has empty."""
    found = Path(tempfile.mkdtemp(prefix="l7-", dir="/run"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "l7", found], check=True)
    yield found
    subprocess.run(["umount", "--lazy", found], check=True)
    shutil.rmtree(found, ignore_errors=True)


class MemoryCgroup:
    """For the container of an engine."""

    def __init__(self) -> None:
        found = next(h for h in cgroup.mounted() if h.version == 2 or "memory" in h.options.split(","))
        if found.version == 2:
            (found.mount / "cgroup.subtree_control").write_text("+memory")
        self.path = found.mount / f"antrea-l7-test-{os.getpid()}"
        self.path.mkdir()
        self._limit = "memory.max" if found.version == 2 else "memory.limit_in_bytes"

    def limit(self, octets: int) -> None:
        (self.path / self._limit).write_text(str(octets))

    def is_limited(self, octets: int) -> bool:
        """Version 1 refuses while more is used."""
        with contextlib.suppress(OSError):
            self.limit(octets)
            return True
        return False


@pytest.fixture
def memory() -> Iterator[MemoryCgroup]:
    found = MemoryCgroup()
    found.limit(PLENTY)
    yield found
    cgroup.remove(found.path)


async def test_an_engine_without_memory_is_closed_named_and_comes_back(
    node: L7Node, folder: Path, memory: MemoryCgroup, tmp_path: Path
) -> None:
    """The kernel ends it as it starts, and again, until the limit is raised."""
    files = EngineFiles(folder)
    async with running(node, files, tmp_path) as control:
        with EngineContainer(files.wanted.parent, cgroup=memory.path) as container:
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            container.crash_only()
            until(lambda: memory.is_limited(LITTLE), "room for a limit that is too low for the next engine")
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (0, "silent"), family, PUBLIC_GET)
            await node.until(lambda: "memory of its container antrea-l7-engine is at its limit" in why(node))
            memory.limit(PLENTY)
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (1, "open"), family, PUBLIC_GET)
                await asyncio.to_thread(node.becomes, (0, "reset"), family, SECRET_GET)
            await node.until(lambda: why(node) == "")
            assert "at its limit" in control.memory_trouble()


@pytest.mark.wide
async def test_an_engine_without_room_on_its_disk_judges_on_as_before_a_change(
    node: L7Node, folder: Path, tmp_path: Path
) -> None:
    """The change is named as not loaded, and loaded when there is room."""
    files = EngineFiles(folder)
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent):
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            fill = folder / "full"
            with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            node.facts.put(stated("In", SECRET))
            await node.until(lambda: "No space left on device" in why(node))
            for family in (0, 1):
                assert await asyncio.to_thread(node.asked, family, PUBLIC_GET) == (1, "open")
                assert await asyncio.to_thread(node.asked, family, SECRET_GET) == (0, "reset")
            fill.unlink()
            await node.until(lambda: why(node) == "")
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (1, "open"), family, SECRET_GET)
                assert await asyncio.to_thread(node.asked, family, PUBLIC_GET) == (0, "reset")
