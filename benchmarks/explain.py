"""Does the explanation of policies say what a real switch does, and how fast is it?

`python -m benchmarks.explain [TRACES] [SEED]`: random clusters with policies of all kinds and selectors, computed by the
controller's units, enforced by the agent's in a private OVS (dummy datapath, no root); of each packet the verdict and the
deciding rule are compared with ofproto/trace. Prints each mismatch with the seed
that repeats it, and for the first the least cluster that still has it.
"""

from __future__ import annotations

import json
import random
import sys
import time

from benchmarks.figure import show
from benchmarks.policy_cluster import Question, cluster, question
from benchmarks.policy_switch import (
    Switch,
    agent_of,
    entry,
    expected,
    packet_of,
    ports,
    smallest,
    world_of,
)
from tests.ovs.ovs_process import OvsProcess, ovs_process, until

TRACES = 100_000
PACKETS = 100
"""In each cluster."""


def bridge(ovs: OvsProcess) -> Switch:
    """br-int with the ports that packets come by."""
    settings = ("datapath_type=dummy", "fail_mode=secure", "protocols=OpenFlow10,OpenFlow15")
    ovs.vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", *settings)
    until((ovs.directory / "br-int.mgmt").exists, "management socket of br-int")
    for name, number in ports().items():
        interface = ("set", "interface", name, "type=dummy", f"ofport_request={number}")
        ovs.vsctl("add-port", "br-int", name, "--", *interface)
    return Switch(ovs.directory)


class Counted:
    """What a run has seen."""

    def __init__(self) -> None:
        self.mismatches = 0
        self.shown = False
        self.refused = 0
        self.by_rule = 0
        self.explaining = 0.0
        self.tracing = 0.0

    def cluster(self, switch: Switch, seed: int, packets: int) -> None:
        """All packets of one cluster."""
        rnd = random.Random(seed)
        objects = cluster(rnd)
        world = world_of(objects)
        agent = agent_of(world)
        switch.install(agent.flows)
        wrong: Question | None = None
        for _ in range(packets):
            asked = question(rnd)
            packet = packet_of(world, asked)
            begin = time.perf_counter()
            wanted = expected(world, packet)
            middle = time.perf_counter()
            found = agent.decided(switch.trace(entry(packet)))
            self.explaining += middle - begin
            self.tracing += time.perf_counter() - middle
            self.refused += not wanted.port
            self.by_rule += wanted.egress is not None or wanted.ingress is not None
            if found != wanted:
                self.mismatches += 1
                wrong = asked
                print(f"mismatch: seed {seed}: {asked}: explained {wanted}, traced {found}", flush=True)
        if wrong is not None and not self.shown:
            self.shown = True
            print(f"the least cluster for it: {json.dumps(smallest(switch, objects, wrong))}", flush=True)


def main() -> None:
    """All clusters; ends with 1 if anything differs."""
    traces = int(sys.argv[1]) if len(sys.argv) > 1 else TRACES
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    counted, begin, done = Counted(), time.monotonic(), 0
    with ovs_process() as ovs:
        switch = bridge(ovs)
        while done < traces:
            packets = min(PACKETS, traces - done)
            counted.cluster(switch, first + done // PACKETS, packets)
            done += packets
        switch.close()
    seconds = time.monotonic() - begin
    show("explain_traces", "packets", [done])
    show("explain_refused", "% of packets", [100 * counted.refused / done])
    show("explain_by_antrea_rule", "% of packets", [100 * counted.by_rule / done])
    show("explain_mismatches", "packets", [counted.mismatches], target=0)
    show("explain_time", "ms per packet", [1000 * counted.explaining / done])
    show("explain_rate", "traces/s", [done / seconds])
    sys.exit(1 if counted.mismatches else 0)


if __name__ == "__main__":
    main()
