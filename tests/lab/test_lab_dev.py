"""`up --dev`: our Pods run this checkout's source, and `reload` restarts them with it in seconds."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import antrea.lab.antrea as product
from antrea.errors import Unavailable
from antrea.lab import cluster, node
from antrea.lab.node_files import SOURCE
from antrea.lab.process import wait_for
from antrea.lab.record import Record
from antrea.lab.settings import Settings

if TYPE_CHECKING:
    from antrea.lab.cluster import Lab

AGENT = ("-n", "kube-system", "exec", "ds/antrea-agent", "-c", "antrea-agent", "--")


def test_reload_restarts_our_programs_from_the_checkout_without_restarting_a_container() -> None:
    record = Record(f"dev{os.getpid()}")
    try:
        lab = cluster.up(record, Settings(nodes=1, dev=True), print)
        here = Path(product.__file__).parents[1] / "__init__.py"
        there = node.execute(record, "node-1", "stat", "-c", "%i", f"{SOURCE}/antrea/__init__.py")
        assert int(there) == here.stat().st_ino
        imported = lab.api.kubectl(*AGENT, "python3", "-c", "import antrea; print(antrea.__file__)")
        assert imported == f"{SOURCE}/antrea/__init__.py\n"

        before = product.running(record)
        began = time.monotonic()
        product.reload(lab)
        after = wait_for("both programs anew", lambda: started_anew(record, before), seconds=20)

        assert sorted(program for _, program in after) == ["antrea-agent", "antrea-controller"]
        assert time.monotonic() - began < 10
        pods = lab.api.items("/api/v1/pods")
        restarts = {c["name"]: c["restartCount"] for p in pods for c in p["status"]["containerStatuses"]}
        assert restarts == dict.fromkeys(("antrea-agent", "antrea-ovs", "antrea-controller", "coredns"), 0)
    finally:
        cluster.down(record)


def started_anew(record: Record, before: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """What runs now if all of it has another pid; else nothing."""
    now = product.running(record)
    return now if len(now) == len(before) and not {p for p, _ in now} & {p for p, _ in before} else []


def test_a_lab_without_dev_refuses_to_reload(lab: Lab) -> None:
    with pytest.raises(Unavailable, match="`antrea-lab up --dev` runs them from the source"):
        product.reload(lab)
