"""The files a node is configured with: containerd, kubelet, kube-proxy, and the script that becomes its init."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lab import cgroup
from lab.control_plane import DOMAIN, first_address
from lab.images import PAUSE
from lab.topology import PODS, SERVICES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lab.topology import Machine, Topology

DNS_HOST = 10
BINARIES = "/opt/kubernetes"
CONFIG = "/etc/kubernetes"
LOGS = "/var/log"
START = "/var/lib/lab/start"
"""kubelet and kube-proxy start when this file exists: there is an API server to talk to."""
SOURCE = "/opt/antrea-source"
"""Where a node of a lab with `--dev` sees the checkout's package."""
READY = "/var/lib/lab/ready"

# what kubelet sets for the whole machine: on a node these are files of its own with the values it wants to find
MACHINE_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def containerd() -> str:
    """containerd's configuration, version 2 (accepted by 1.5 and later)."""
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # a root without CAP_SYS_RESOURCE cannot lower oom_score_adj; without this line every sandbox would die there with
  # "runc create failed: can't get final child's PID from pipe: EOF"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def kubelet(topology: Topology) -> dict[str, Any]:
    """KubeletConfiguration; periods are shorter than the defaults, so that tests need not wait for them."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "::" if topology.family != "ipv4" else "0.0.0.0",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{CONFIG}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{CONFIG}/kubelet.crt",
        "tlsPrivateKeyFile": f"{CONFIG}/kubelet.key",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "clusterDNS": [first_address(SERVICES, DNS_HOST, topology)],
        "clusterDomain": DOMAIN,
        "resolvConf": "/etc/resolv.conf",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failSwapOn": False,
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        # the machine's disk is shared with everything else on it and may be rather full
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            **dict.fromkeys(
                ("nodefs.available", "imagefs.available", "nodefs.inodesFree", "imagefs.inodesFree"), "0%"
            ),
        },
        "syncFrequency": "10s",
        "fileCheckFrequency": "20s",
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 16,
        "maxPods": 110,
        "logging": {"verbosity": 2},
    }


def kube_proxy(topology: Topology, node: str, mode: str) -> dict[str, Any]:
    """KubeProxyConfiguration."""
    # 0s would be taken as "not set", which is 1s: for that long a new Service would refuse connections
    periods = {"minSyncPeriod": "20ms", "syncPeriod": "30s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "clusterCIDR": ",".join(PODS.prefixes(topology.family)),
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": f"{CONFIG}/kube-proxy.conf"},
        # nf_conntrack_max is read-only in a network namespace: leave everything as it is
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": periods,
        "nftables": periods,
        "logging": {"verbosity": 2},
    }


def hosts(topology: Topology) -> str:
    """Return the text of /etc/hosts, with the names of all Nodes."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for machine in topology.nodes:
        lines += [f"{machine.address('eth0', v)} {machine.name}" for v in topology.versions]
    return "\n".join(lines) + "\n"


def kubelet_command(topology: Topology, node: Machine) -> str:
    """Return the command line of the kubelet of a Node."""
    ips = ",".join(node.address("eth0", v) for v in topology.versions)
    return (
        f"{BINARIES}/kubelet --config {CONFIG}/kubelet.yaml --kubeconfig {CONFIG}/kubelet.conf "
        f"--hostname-override {node.name} --node-ip {ips}"
    )


def kube_proxy_command() -> str:
    """Return the command line of kube-proxy."""
    return f"{BINARIES}/kube-proxy --config {CONFIG}/kube-proxy.yaml"


def yaml(value: dict[str, Any]) -> bytes:
    """Return a value as YAML."""
    return msgspec.yaml.encode(value)


# Runs as process 1 in the node's new namespaces. $1 is the node's directory on the machine, $2 the node's name.
INIT = r"""
set -eu
N=$1 R=$1/root
mount --make-rprivate /
mount --bind "$R" "$R"
# the machine's programs; what the node itself puts there (kubelet makes /lib/modules for a Pod) stays in its directory
mkdir -p "$N/usr" "$N/usr.work" "$R/usr"
mount -t overlay -o "lowerdir=/usr,upperdir=$N/usr,workdir=$N/usr.work" overlay "$R/usr"
# on systems without merged /usr the top-level directories too, read-only
for d in bin sbin lib lib32 lib64; do
  if [ -L /$d ]; then [ -L "$R/$d" ] || cp -P /$d "$R/$d"
  elif [ -d /$d ]; then mkdir -p "$R/$d"; mount --rbind /$d "$R/$d"; mount -o remount,bind,ro "$R/$d"; fi
done
# the machine's Python is not the node's
mkdir -p "$N/empty"
for d in "$R"/usr/lib/python[23]* "$R"/usr/local/lib/python[23]*; do [ ! -d "$d" ] || mount --bind "$N/empty" "$d"; done
for f in "$R"/usr/bin/python[23]* "$R"/usr/local/bin/python*; do
  [ ! -f "$f" ] || [ -L "$f" ] || mount --bind -o ro /dev/null "$f"
done
mount -t overlay -o "lowerdir=/etc,upperdir=$N/etc,workdir=$N/etc.work" overlay "$R/etc"
%(binaries)s
mount --rbind /dev "$R/dev"
[ ! -d "$R/dev/shm" ] || mount -t tmpfs -o mode=1777 tmpfs "$R/dev/shm"
mount -t proc proc "$R/proc"
mount -t sysfs sysfs "$R/sys"
mount -t tmpfs -o mode=755 tmpfs "$R/run"
mkdir -p "$R/run/netns" "$R/run/lock" "$R/run/containerd"
cd "$R"
pivot_root . old
umount -l /old
hostname "$2"
%(cgroups)s
%(tunables)s
# volumes with mountPropagation need shared mounts, as systemd makes them
mount --make-rshared /
serve() {
  name=$1; shift
  while :; do
    "$@" >> /var/log/$name.log 2>&1 || echo "$name ended with $?; it is started again" >> /var/log/$name.log
    sleep 1
  done
}
after_start() { until [ -e %(start)s ] && [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done; serve "$@"; }
trap : TERM
echo ready > %(ready)s
serve containerd containerd -c /etc/containerd/lab.toml &
%(services)s
while :; do wait || true; done
"""


def init(services: Sequence[tuple[str, str]], programs: Sequence[Path], source: Path | None) -> str:
    """The init script; `services` are names and commands that start once there is an API server.

    `programs` of the machine appear in the node's /opt/kubernetes, `source` (a package directory) in SOURCE.
    """
    places = [f"$R{BINARIES}/{p.name}" for p in programs]
    binaries = [
        f'touch "{place}"; mount --bind "{program}" "{place}"'
        for program, place in zip(programs, places, strict=True)
    ]
    tunables = [
        f"[ ! -e /proc/sys/{name} ] || mount --bind /etc/tunables/{name.replace('/', '.')} /proc/sys/{name}"
        for name in MACHINE_TUNABLES
    ]
    if source:
        place = f"$R{SOURCE}/{source.name}"
        binaries.append(f'mkdir -p "{place}"; mount --bind -o ro "{source}" "{place}"')
    return INIT % {
        "binaries": "\n".join(binaries),
        "cgroups": "\n".join(cgroup.mount_lines(cgroup.mounted())),
        "tunables": "\n".join(tunables),
        "start": START,
        "ready": READY,
        "services": "\n".join(f"after_start {name} {command} &" for name, command in services),
    }


def write_tunables(etc: Path) -> None:
    """Write the kernel settings that a Node sees in place of those of the machine."""
    directory = etc / "tunables"
    directory.mkdir(exist_ok=True)
    for name, value in MACHINE_TUNABLES.items():
        (directory / name.replace("/", ".")).write_text(f"{value}\n")
