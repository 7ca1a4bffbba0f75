"""The lab's API server goes away and comes back, and what our programs asked of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from antrea.errors import Unavailable
from lab import cgroup, namespace
from lab import control_plane as plane
from lab.process import end, launch, run, wait_for
from lab.record import Cgroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

COMPLETE = "ResponseComplete"
"""The last stage of a request. Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/"""


class Request(NamedTuple):
    """One of the audit log; `at` is when it came, in seconds since 1970; `who` is an account and an address.

    `code` is that of the answer, `over` says that the answer has ended.
    """

    at: float
    who: tuple[str, str]
    verb: str
    what: str
    code: int
    over: bool


def requests(lab: Lab) -> list[Request]:
    """What our programs have asked so far, each request once, by the time at which it came."""
    found: dict[str, Request] = {}
    for line in plane.audit_log(lab.record).read_text().splitlines():
        event = json.loads(line)
        about = event.get("objectRef", {})
        account = event["user"]["username"].rpartition(":")[2]
        what = "/".join(filter(None, (about.get("resource", event["requestURI"]), about.get("subresource"))))
        if name := re.search(r"(?:metadata\.name|spec\.nodeName)%3D([^&]+)", event["requestURI"]):
            what += f"={name[1]}"
        came = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        code = event.get("responseStatus", {}).get("code", 0)
        over = event["stage"] == COMPLETE
        found[event["auditID"]] = Request(
            came, (account, event["sourceIPs"][0]), event["verb"], what, code, over
        )
    return sorted(found.values())


def followed(lab: Lab) -> Counter[tuple[tuple[str, str], str]]:
    """How often each of our programs follows what: the watches that the API server holds now."""
    ticks = lab.record.processes()["kube-apiserver"].start
    up = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    held = (r for r in requests(lab) if r.verb == "watch" and r.code == 200 and r.at > up and not r.over)
    return Counter((r.who, r.what) for r in held)


@contextlib.contextmanager
def away(lab: Lab) -> Iterator[None]:
    """Killed, and started again after the block, with the same words; returns when it is ready."""
    process = lab.record.processes()["kube-apiserver"]
    words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    end([process])
    try:
        yield
    finally:
        network = namespace.path(lab.record, lab.topology.control_plane.name)
        with lab.record.locked():
            launch(lab.record, "kube-apiserver", namespace.inside(network, words))
        wait_for("the API server", lab.api.ready, seconds=60, step=0.05)


CPU_PERIOD = 1_000_000
"""Microseconds, the longest that the kernel takes: shares below a hundredth of a processor need it."""
FIRST_QUOTA, MIN_QUOTA = 64_000, 1_000
"""Microseconds of processor time in each period."""


def took(lab: Lab) -> float:
    """Seconds for one request with a connection of its own, from the control plane's network."""
    network = namespace.path(lab.record, lab.topology.control_plane.name)
    words = ["curl", "-sk", "-o", "/dev/null", "-m", "30", f"{plane.server_url(lab.topology)}/version"]
    begin = time.monotonic()
    with contextlib.suppress(Unavailable):
        run(namespace.inside(network, words), seconds=60)
    return time.monotonic() - begin


def slow_down(lab: Lab, seconds: float) -> None:
    """Give the API server less and less processor time, until a request takes that long."""
    hierarchy = _cpu()
    group = hierarchy.mount / f"{cgroup.top_name(lab.record)}-slow"
    lab.record.note(Cgroup(str(group)))
    group.mkdir()
    _write_quota(group, quota := FIRST_QUOTA)
    pid = lab.record.processes()["kube-apiserver"].pid
    _origin(lab).write_text(str(_group_of(pid, hierarchy)))
    (group / "cgroup.procs").write_text(str(pid))
    while took(lab) < seconds:
        if quota <= MIN_QUOTA:
            raise Unavailable(f"a kube-apiserver that takes {seconds:g} s for a request")
        _write_quota(group, quota := max(MIN_QUOTA, quota * 3 // 4))


def speed_up(lab: Lab) -> None:
    """Let the API server have the processor time that it had before."""
    hierarchy = _cpu()
    group = hierarchy.mount / f"{cgroup.top_name(lab.record)}-slow"
    if group.exists():
        back = Path(_origin(lab).read_text()) / "cgroup.procs"
        back.write_text(str(lab.record.processes()["kube-apiserver"].pid))
        cgroup.remove(group)


def _origin(lab: Lab) -> Path:
    """The file with the group that the API server was in before."""
    return lab.record.directory / "api-server-group"


def _group_of(pid: int, hierarchy: cgroup.Hierarchy) -> Path:
    """The group of a process (cgroups(7), /proc/PID/cgroup)."""
    controllers = hierarchy.options if hierarchy.version == 1 else ""
    rows = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    return next(hierarchy.mount / path.lstrip("/") for _, named, path in rows if named == controllers)


def _cpu() -> cgroup.Hierarchy:
    return next(row for row in cgroup.mounted() if row.version == 2 or "cpu" in row.options.split(","))


def _write_quota(group: Path, quota: int) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {CPU_PERIOD}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(CPU_PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
