"""The container antrea-ovs while somebody restarts the daemons by ovs-ctl in it, as upstream's own tests do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

START_OVS = Path(__file__).parents[2] / "build/image/start_ovs"
OVS_CTL = Path("/usr/share/openvswitch/scripts/ovs-ctl")
pytestmark = pytest.mark.skipif(not OVS_CTL.exists(), reason="Open vSwitch has no ovs-ctl here")
SCRIPT = f"""
mount -t tmpfs none /var/run && mount -t tmpfs none /var/log && mount -t tmpfs none /etc/openvswitch || exit 9
run=/var/run/openvswitch
until_there() {{ # until_there COUNT LINE: start_ovs has said so as often as that
    for _ in $(seq 600); do [ "$(grep -c "$2" /var/log/said)" -ge "$1" ] && return; sleep 0.1; done
    echo "start_ovs does not say $2"; cat /var/log/said; exit 8
}}
sh {START_OVS} > /var/log/said 2>&1 &
until_there 1 "started ovs-vswitchd"
timeout 100 {OVS_CTL} --system-id=random restart --db-file=$run/conf.db > /var/log/restart 2>&1
echo "ovs-ctl: $?"
kill -0 $(cat $run/ovsdb-server.pid) $(cat $run/ovs-vswitchd.pid) && echo "both run"
# what dies now is started again, by start_ovs and no longer by ovs-ctl's own monitor
database=$(cat $run/ovsdb-server.pid)
switch=$(cat $run/ovs-vswitchd.pid)
kill -9 $(sed -n 's/^PPid:\\s*//p' /proc/$switch/status) $switch
until_there 2 "started ovs-vswitchd"
ovs-vsctl --timeout=60 add-br br0 -- set bridge br0 datapath_type=netdev && echo "a bridge"
[ "$(cat $run/ovsdb-server.pid)" = "$database" ] && echo "the same database"
echo "databases: $(grep -c 'started ovsdb-server' /var/log/said)"
"""


def test_ovs_ctl_restarts_the_daemons_of_the_container_and_start_ovs_goes_on_with_them() -> None:
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", SCRIPT],
        capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "ovs-ctl: 0", "both run", "a bridge", "the same database", "databases: 1",
    ], done.stdout + done.stderr  # fmt: skip
