"""The container antrea-ovs ends: the transport interface that br-phy held has its addresses and routes again, if the agent has ended, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START_OVS = ROOT / "build/image/start_ovs"
SCRIPT = f"""
mount -t tmpfs none /var/run && mount -t tmpfs none /var/log && mount -t tmpfs none /etc/openvswitch || exit 9
run=/var/run/openvswitch
until_there() {{ # until_there COUNT LINE: start_ovs has said so as often as that
    for _ in $(seq 600); do [ "$(grep -c "$2" /var/log/said)" -ge "$1" ] && return; sleep 0.1; done
    echo "start_ovs does not say $2"; cat /var/log/said; exit 8
}}
state() {{
    ip -o addr show dev eth0 scope global | awk '{{print $4}}'
    ip route show dev eth0 default
    ip -6 route show dev eth0 default | cut -d' ' -f1-5
    nft list chains netdev | grep -o 'chain .* ' || true
}}
ip link set lo up && ip link add eth0 type veth peer name far && ip link set eth0 up && ip link set far up || exit 7
ip link add pod0 type veth peer name pod1 || exit 7
sh {START_OVS} >> /var/log/said 2>&1 &
start=$!
until_there 1 "started ovs-vswitchd"
ovs-vsctl --timeout=60 add-br br-phy -- set bridge br-phy datapath_type=netdev external_ids:antrea-interface=eth0 \\
    'external_ids:antrea-addresses="192.0.2.1/24,2001:db8:2::1/64"' \\
    'external_ids:antrea-routes=">192.0.2.254,>2001:db8:2::fe"' -- add-port br-phy eth0 || exit 6
for dev in eth0 pod0; do
    nft add table netdev antrea
    nft add chain netdev antrea shield-$dev "{{ type filter hook ingress device $dev priority 0; policy drop; }}" || exit 5
done
[ "$AGENT" = lives ] || touch $run/antrea-agent.ended
kill $start
wait $start
state
grep -E "again|without" /var/log/said
"""


@pytest.mark.parametrize(
    ("agent", "state"),
    [
        (
            "ended",
            [
                "192.0.2.1/24", "2001:db8:2::1/64",
                "default via 192.0.2.254 proto static", "default via 2001:db8:2::fe proto static",
                "chain shield-pod0 ",
                "eth0 has 192.0.2.1/24, 2001:db8:2::1/64 again",
            ],
        ),
        ("lives", ["chain shield-eth0 ", "chain shield-pod0 "]),
    ],
)  # fmt: skip
def test_the_transport_interface_is_given_back_as_the_switch_ends(agent: str, state: list[str]) -> None:
    environment = {
        **os.environ,
        "AGENT": agent,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    words = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-c",
        SCRIPT,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=110, env=environment)
    assert [line.rstrip() for line in done.stdout.splitlines()] == [line.rstrip() for line in state], (
        done.stdout + done.stderr
    )
