"""The bridge br-int of a private OVS, as tests speak to it: lines in, lines out."""

from __future__ import annotations

import re
import subprocess
import tempfile
from typing import TYPE_CHECKING

from ovs_process import OvsProcess, listens, until

from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.group_tree import tree
from antrea.openflow.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.openflow.pipeline import Pipeline

_NOISE = re.compile(
    r"duration=[^,]+, |n_packets=\d+, n_bytes=\d+, |(?:idle|hard)_age=\d+, |reset_counts ?|(?<=,) (?=priority)"
)


class OvsBridge:
    """br-int with datapath_type=dummy; `process` is the pair of daemons under it."""

    def __init__(self, process: OvsProcess) -> None:
        self.process = process
        self.db = f"unix:{process.socket}"
        self.mgmt = f"unix:{process.directory}/br-int.mgmt"
        settings = ("datapath_type=dummy", "fail_mode=secure", "protocols=OpenFlow10,OpenFlow15")
        process.vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", *settings)
        until(lambda: listens(process.directory / "br-int.mgmt"), "management socket of br-int")

    def ofctl(self, command: str, *arguments: str, lines: Iterable[str] = ()) -> str:
        """One run of ovs-ofctl; `lines` are its standard input. A complaint is an AssertionError."""
        run = subprocess.run(
            ("ovs-ofctl", "-O", "OpenFlow15", command, self.mgmt, *arguments),
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    def bundle(self, lines: Iterable[str]) -> None:
        """Lines that start with `flow` or `group`, all applied at once or not at all."""
        self.ofctl("bundle", "-", lines=lines)

    def add_flows(self, lines: Iterable[str]) -> None:
        self.bundle(f"flow add {line}" for line in lines)

    def install(self, entries: Iterable[object], pipeline: Pipeline) -> None:
        """Meters, groups and flows among the agent's entries, in the first round."""
        found = list(entries)
        for meter in found:
            if isinstance(meter, Meter):
                self.ofctl("add-meter", meter.text)
        groups = (
            line
            for group in found
            if isinstance(group, Group)
            for one in tree(group)
            for line in one.lines(pipeline)
        )
        flows = (flow.text(pipeline, 1) for flow in found if isinstance(flow, Flow))
        self.bundle([*(f"group {line}" for line in groups), *(f"flow add {line}" for line in flows)])

    def dump(self) -> list[str]:
        """Standing flows without counters, as `cookie=..., table=..., priority=...,match actions=...`."""
        found = self.ofctl("dump-flows", "--no-stats").splitlines()
        return [_NOISE.sub("", line).strip() for line in found]

    def difference(self, lines: Iterable[str]) -> str:
        """What `ovs-ofctl diff-flows` finds between the bridge and these flows; "" if they are the same."""
        with tempfile.NamedTemporaryFile("w", dir=self.process.directory) as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            command = ("ovs-ofctl", "-O", "OpenFlow15", "diff-flows", self.mgmt, file.name)
            run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return run.stdout + run.stderr

    def trace(self, flow: str) -> str:
        """The way of one packet: `in_port=p1,tcp,nw_dst=...` (ovs-vswitchd(8) ofproto/trace)."""
        return self.appctl("ofproto/trace", "br-int", flow)

    def appctl(self, *arguments: str) -> str:
        return self.process.appctl(*arguments)

    def vsctl(self, *arguments: str) -> str:
        return self.process.vsctl(*arguments)

    def add_ports(self, ports: Mapping[str, int]) -> None:
        """Each by its name, with this number."""
        for name, number in ports.items():
            self.add_port(name, number)

    def add_port(self, name: str, number: int) -> None:
        """A port that packets can be traced from."""
        interface = ("set", "interface", name, "type=dummy", f"ofport_request={number}")
        self.vsctl("add-port", "br-int", name, "--", *interface)

    def clear(self) -> None:
        """No flow, no group and no meter, also in the cache: packets would meet what is only there until the next pass."""
        for command in ("del-flows", "del-groups", "del-meters"):
            self.ofctl(command)
        self.appctl("revalidator/purge")
