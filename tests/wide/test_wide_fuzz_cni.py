"""The CNI plugin with the sanitizers, between a runtime and an agent of which either may send anything: it ends, in time and orderly."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fuzzing import anything, spoilt, text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from fuzzing import Fuzz

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7200)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plugin() -> Path:
    subprocess.run(["make", "-s", "-C", ROOT / "cni", "antrea-cni-asan"], check=True)
    return ROOT / "cni/antrea-cni-asan"


class Agent:
    """Answers each call with `answer`, as it is then."""

    def __init__(self, path: Path) -> None:
        self.answer: list[bytes] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen(16)
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plugin, _ = self._door.accept()
                with plugin, contextlib.suppress(OSError):
                    plugin.settimeout(10)
                    if len(self.answer) != 1:
                        plugin.makefile("rb").readline()
                    for part in self.answer:
                        plugin.sendall(part)


@pytest.fixture
def agent() -> Iterator[tuple[Agent, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="cni-"))
    found = Agent(folder / "s")
    yield found, folder / "s"
    found.close()
    shutil.rmtree(folder)


def stdin(rnd: Random, path: Path) -> bytes:
    whole = json.dumps({text(rnd): anything(rnd), "cniSocket": str(path), text(rnd): anything(rnd)}).encode(
        "utf-8", "replace"
    )
    way = rnd.randrange(10)
    if way == 0:
        return whole + b" " * ((1 << 20) - len(whole) + rnd.randrange(-2, 3))
    if way == 1:
        return rnd.choice((b"[", b'{"a":')) * rnd.randrange(100_000) + whole
    return spoilt(rnd, whole) if way < 6 else whole


def answer(rnd: Random) -> list[bytes]:
    whole = rnd.choice((b"0", b"1", b"2", b"")) + json.dumps(anything(rnd)).encode("utf-8", "replace") + b"\n"
    if rnd.random() < 0.1:
        whole = b"0" + b"x" * rnd.randrange(2 << 20) + b"\n"
    whole = spoilt(rnd, whole) if rnd.random() < 0.4 else whole
    cut = rnd.randrange(len(whole) + 1)
    return [whole[:cut], whole[cut:]] if rnd.random() < 0.8 else [whole]


def test_wide_fuzz_cni_plugin(fuzz: Fuzz, plugin: Path, agent: tuple[Agent, Path]) -> None:
    serving, path = agent
    succeeded = 0
    for rnd in fuzz:
        environment = {"PATH": os.environ["PATH"], "ANTREA_CNI_TIMEOUT_MS": "400"}
        for name in ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"):
            value = (
                text(rnd)
                if rnd.random() < 0.5
                else rnd.choice(("ADD", "DEL", "STATUS", "VERSION", "x" * 5000))
            )
            if rnd.random() < 0.9:
                environment[name] = value.replace("\0", "")
        serving.answer = answer(rnd)
        done = subprocess.run(
            [plugin], input=stdin(rnd, path), env=environment, capture_output=True, check=False, timeout=60
        )
        # what the sanitizers have to say is on stderr, and ends it with another status
        assert (done.returncode in (0, 1), done.stderr) == (True, b"")
        succeeded += done.returncode == 0
        if (
            done.stdout
            and done.returncode == 1
            and b'"msg"' in done.stdout
            and b"antrea-agent" in done.stdout
        ):
            assert done.stdout.endswith(b"\n")
    print(f"{succeeded} succeeded")
