"""The image for upstream's suite serves and connects by SCTP where the kernel has no SCTP sockets."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from image_build.rootfs import static_program
from lab import e2e_images

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Namespaces

OPEN, SILENT, REJECTED = 80, 81, 82
RULES = f"""
table inet t {{
  chain input {{
    type filter hook input priority 0
    sctp dport {REJECTED} reject with icmpx admin-prohibited
  }}
}}
"""
pytestmark = pytest.mark.skipif(
    subprocess.run(["grep", "-q", "^SCTP ", "/proc/net/protocols"], check=False).returncode == 0,
    reason="the kernel has SCTP sockets, which agnhost itself uses",
)


@pytest.fixture(scope="module")
def program() -> Path:
    return static_program(e2e_images.SCTP_SOURCE)


@pytest.fixture
def server(program: Path, netns: Namespaces) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, f"SERVE_SCTP_PORT_{OPEN}": "foo", f"SERVE_SCTP_PORT_{REJECTED}": "foo"}
    words = ["ip", "netns", "exec", netns.home, str(program), "porter"]
    with subprocess.Popen(words, env=environment) as process:
        deadline = time.monotonic() + 60
        while attempt(program, netns, f"127.0.0.1:{OPEN}")[0]:
            assert time.monotonic() < deadline, "porter does not answer"
        yield process
        process.kill()


def attempt(program: Path, netns: Namespaces, place: str) -> tuple[int, str]:
    done = netns.run(f"{program} connect {place} --timeout=1s --protocol=sctp")
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.usefixtures("server")
def test_an_association_is_set_up_in_both_families_and_what_refuses_it_is_named(
    program: Path, netns: Namespaces
) -> None:
    netns.sh(f"nft -f - <<'EOF'{RULES}EOF")
    for address in ("127.0.0.1", "[::1]"):
        assert attempt(program, netns, f"{address}:{OPEN}") == (0, "")
        assert attempt(program, netns, f"{address}:{SILENT}") == (1, "TIMEOUT\n")
    assert attempt(program, netns, f"127.0.0.1:{REJECTED}") == (1, "OTHER: no route to host\n")
    assert attempt(program, netns, f"[::1]:{REJECTED}") == (1, "OTHER: permission denied\n")


def test_a_peer_without_a_server_is_not_reached(program: Path, netns: Namespaces) -> None:
    assert attempt(program, netns, f"127.0.0.1:{OPEN}") == (1, "TIMEOUT\n")
