"""Does the explanation of policies say what a real switch does, and how fast is it?

`python -m benchmarks.explain [TRACES] [SEED] [services]`: random clusters with policies of all kinds and selectors, computed by the
controller's units, enforced by the agent's in a private OVS (dummy datapath, no root); of each packet the port and the
deciding rules of Antrea's own policies are compared with ofproto/trace. Prints the first mismatch of a cluster with the
seed that repeats it, and the least cluster that still has the first of all. With `services`, AntreaProxy serves Services of
random settings and Endpoints, and three packets of four are for them.
"""

from __future__ import annotations

import sys
import time

from figure import show
from policy_bridge import policy_bridge
from policy_trial import Trial

from tests.ovs.ovs_process import ovs_process

TRACES = 100_000
PACKETS = 100
"""In each cluster."""
PROGRESS = 5_000
"""Packets between two lines."""


def main() -> None:
    """All clusters; ends with 1 if anything differs."""
    traces = int(sys.argv[1]) if len(sys.argv) > 1 else TRACES
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    proxied = "services" in sys.argv[3:]
    trial, begin = Trial(), time.monotonic()
    with ovs_process() as ovs:
        switch = policy_bridge(ovs)
        while trial.packets < traces:
            known = len(trial.differences)
            trial.cluster(switch, seed, min(PACKETS, traces - trial.packets), proxied=proxied)
            seed += 1
            for one in trial.differences[known:]:
                print(f"mismatch: {one}", flush=True)
            if trial.packets % PROGRESS == 0:
                print(
                    f"{trial.packets} packets, {trial.node_ports} to NodePorts, next seed {seed}", flush=True
                )
        switch.close()
    seconds, done = time.monotonic() - begin, trial.packets
    show("explain_traces", "packets", [done])
    show("explain_balanced", "% of packets", [100 * trial.balanced / done])
    show("explain_node_port", "% of packets", [100 * trial.node_ports / done])
    show("explain_direct", "% of packets", [100 * trial.direct / done])
    show("explain_refused", "% of packets", [100 * trial.refused / done])
    show("explain_by_antrea_rule", "% of packets", [100 * trial.by_antrea / done])
    show("explain_mismatches", "packets", [trial.mismatches], target=0)
    show("explain_time", "ms per packet", [1000 * trial.explaining / done])
    show("explain_rate", "traces/s", [done / seconds])
    sys.exit(1 if trial.mismatches else 0)


if __name__ == "__main__":
    main()
