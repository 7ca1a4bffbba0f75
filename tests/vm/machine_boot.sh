#!/bin/bash
# The start of a machine outside the cluster, as its system does it: its disk, what is to run before the network, the network,
# Open vSwitch with the database of before, the agent. Arguments: IPv4 and IPv6 address with prefix, their routers, the server.
set -eu
modprobe -a virtio_net virtio_blk ext4 openvswitch
until [ -b /dev/vda ]; do sleep 0.2; done
mkdir -p /run/disk /run/etc
mount /dev/vda /run/disk
mkdir -p /run/disk/etc/openvswitch /run/disk/var/lib/antrea
cp -a /etc/. /run/etc
rm -rf /run/etc/openvswitch /run/etc/antrea
ln -s /run/disk/etc/openvswitch /run/disk/etc/antrea /run/etc
mount --bind /run/etc /etc
for place in /var/lib /var/log; do mount -t tmpfs tmpfs $place; done
ln -s /run/disk/var/lib/antrea /var/lib/antrea
mkdir -p /var/log/openvswitch /var/log/antrea

run_unit() { # run_unit NAME: what a unit of systemd says, where its condition holds
    local file=/run/disk/etc/systemd/system/$1.service condition
    condition=$(sed -n 's/^ConditionPathExists=//p' "$file")
    [ -z "$condition" ] || [ -e "$condition" ] || return 0
    env $(sed -n 's/^Environment=//p' "$file") $(sed -n 's/^ExecStart=//p' "$file")
}

run_unit antrea-boot-guard
ip address add "$1" dev eth0
ip address add "$2" dev eth0 nodad
ip link set eth0 up
ip route add default via "$3"
ip -6 route add default via "$4"
python3 -IS "$5" &
server=$!
/usr/share/openvswitch/scripts/ovs-ctl --system-id=random --no-monitor start
while :; do
    run_unit antrea-agent >>/run/agent.log 2>&1 || true
    sleep 2
done &
wait $server
tail -n 60 /run/agent.log
sync
