"""antctl as on a workstation: in the control plane's network, with nothing but a kubeconfig that tells it of the cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from lab import cluster
from lab import control_plane as plane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab


def command(lab: Lab, *words: str) -> list[str]:
    """The words that run it."""
    kubeconfig = str(plane.kubeconfig(lab.record))
    return cluster.enter(
        lab, "control", [sys.executable, "-P", "-m", "antrea.antctl.main", "-k", kubeconfig, *words]
    )


def environment() -> dict[str, str]:
    """Ours without what tells of another cluster."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}


def run(lab: Lab, *words: str, code: int = 0, seconds: float = 180) -> subprocess.CompletedProcess[str]:
    """It ends with `code` within `seconds`."""
    done = subprocess.run(
        command(lab, *words),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env=environment(),
    )
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@contextlib.contextmanager
def running(lab: Lab, *words: str) -> Iterator[subprocess.Popen[str]]:
    """While the block runs; it is killed in the end if it has not ended."""
    with subprocess.Popen(
        command(lab, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()
