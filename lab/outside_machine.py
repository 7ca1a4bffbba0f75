"""A machine outside the cluster: a host of the lab with Open vSwitch and our agent, installed by install.sh as its administrator would.

It has mounts and processes of its own, and the programs of this machine; its `sudo` and `systemctl start|stop antrea-agent` do what
a machine with systemd does. docs/external-node.md has the steps.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from lab import control_plane, namespace
from lab.process import launch, run, tail, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.cluster import Lab
    from lab.record import Record

INSTALLED = Path(__file__).parents[1] / "build/external-node"
SPACE, ACCOUNT = "vm-ns", "vm-agent"
"""Namespace of ExternalNodes, and the ServiceAccount of their agents."""
NODE_PORT = 32767
SERVICE = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {SPACE}}}
---
apiVersion: v1
kind: Service
metadata: {{name: antrea-for-machines, namespace: kube-system}}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {{app: antrea, component: antrea-controller}}
  ports: [{{port: 443, protocol: TCP, targetPort: api, nodePort: {NODE_PORT}}}]
"""
PROGRAMS = "/run/machine/bin"
INIT = rf"""
set -eu
N=$1
cd /
mount --make-rprivate /
mount -t overlay -o "lowerdir=/etc,upperdir=$N/root/etc,workdir=$N/etc.work" overlay /etc
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/openvswitch {PROGRAMS} /tmp/antrea
mount -t tmpfs -o mode=755 tmpfs /tmp/antrea # where agents make support bundles
cp "$N"/bin/* {PROGRAMS}
mount --bind "$N/root/var/log" /var/log
mount --bind "$N/root/var/lib" /var/lib # last: the directory of the lab is below it
hostname "$2"
echo 1 >/proc/sys/net/ipv4/tcp_syn_retries
PATH={PROGRAMS}:$PATH
mkdir -p /var/lib/openvswitch /var/log/openvswitch
ovsdb-tool create /var/lib/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server /var/lib/openvswitch/conf.db --remote=punix:/run/openvswitch/db.sock --pidfile --detach --log-file
ovs-vsctl --no-wait init -- set Open_vSwitch . other_config:n-handler-threads=1 other_config:n-revalidator-threads=1
ovs-vswitchd unix:/run/openvswitch/db.sock --pidfile --detach --log-file
trap : TERM
touch /run/machine/ready
while :; do
  if [ -e /run/machine/wanted ]; then
    unit=/etc/systemd/system/antrea-agent.service
    env $(sed -n 's/^Environment=//p' $unit) $(sed -n 's/^ExecStart=//p' $unit) >>/var/log/antrea/antrea-agent.log 2>&1 &
    echo $! >/run/machine/agent
    wait $! || true
    rm -f /run/machine/agent
  fi
  sleep 0.5
done
"""
SUDO = '#!/bin/sh\nexec "$@"\n'
IPERF3 = '#!/bin/sh\nPATH=/usr/local/bin:/usr/bin:/bin exec iperf3 "$@" 2>&1\n'
"""Upstream's suite looks for its errors in what it prints."""
CURL = '#!/bin/sh\nPATH=/usr/local/bin:/usr/bin:/bin exec curl -v "$@" --connect-timeout 10\n'
"""Upstream's suite looks for the kernel's words, which curl 7.88 prints with -v alone; after 3 s the kernel gives up who does not answer."""
SYSTEMCTL = """#!/bin/sh
[ "$2" = antrea-agent ] || exit 5
case $1 in
    start) touch /run/machine/wanted ;;
    stop)
        rm -f /run/machine/wanted
        while read -r pid </run/machine/agent; do kill "$pid"; sleep 0.2; done 2>/dev/null
        true ;;
    *) exit 1 ;;
esac
"""


def serve(lab: Lab) -> None:
    """The Namespace of machines, the rights of their agents, and a way from outside to antrea-controller."""
    lab.api.apply(SERVICE)
    lab.api.apply((INSTALLED / "rbac.yml").read_text())


def start(lab: Lab, name: str, *gates: str, resolver: str = "") -> None:
    """Install an agent with these gates on a host of the lab, and start its switch; `systemctl start antrea-agent` starts the agent.

    Programs of the machine ask the DNS server at address `resolver`, if it is given. Raises Unavailable.
    """
    place = _directory(lab.record, name)
    for part in ("root/etc", "root/var/lib", "root/var/log", "etc.work", "bin"):
        (place / part).mkdir(parents=True)
    for program, text in (("sudo", SUDO), ("systemctl", SYSTEMCTL), ("iperf3", IPERF3), ("curl", CURL)):
        (place / "bin" / program).write_text(text)
        (place / "bin" / program).chmod(0o755)
    if resolver:
        (place / "root/etc/resolv.conf").write_text(f"nameserver {resolver}\n")
    _install(lab, name, place, gates)
    (place / "init.sh").write_text(INIT)
    unshare: list[str | Path] = [
        *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL"),
        *("bash", place / "init.sh", place, name),
    ]
    with lab.record.locked():
        init = launch(lab.record, name, namespace.inside(namespace.path(lab.record, name), unshare))
    wait_for(f"the start of {name}", lambda: _is_ready(lab.record, name) or not init.alive, seconds=60)
    if not init.alive:
        raise Unavailable(f"{name} ended: {tail(lab.record.directory / 'logs' / f'{name}.log')}")


def inside(record: Record, name: str, argv: Sequence[str | Path]) -> list[str]:
    """The command, run on the machine. Raises Unavailable if it does not run."""
    process = record.processes().get(name)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children") if process else None
    pid = children.read_text().split()[:1] if children else []
    if not pid:
        raise Unavailable(f"{name} is not running")
    path = f"PATH={PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    command = ["nsenter", "-t", pid[0], "-m", "-u", "-i", "-n", "-p", "--", "env", path, "HOME=/root"]
    return [*command, *map(str, argv)]


def execute(record: Record, name: str, *argv: str, seconds: float = 60) -> str:
    """Run a command on the machine and return what it printed; raises Unavailable when it fails."""
    return run(inside(record, name, argv), record=record, seconds=seconds)


def machines(lab: Lab) -> tuple[str, ...]:
    """Hosts of the lab that run an agent."""
    return tuple(
        machine.name for machine in lab.topology.machines if _directory(lab.record, machine.name).exists()
    )


def _directory(record: Record, name: str) -> Path:
    return record.directory / "machines" / name


def _is_ready(record: Record, name: str) -> bool:
    try:
        execute(record, name, "test", "-e", "/run/machine/ready")
    except (Unavailable, OSError):
        return False
    return True


def _install(lab: Lab, name: str, place: Path, gates: Sequence[str]) -> None:
    token = lab.api.kubectl("create", "token", ACCOUNT, f"--namespace={SPACE}", "--duration=24h").strip()
    authority = (control_plane.pki(lab.record) / "ca.crt").read_text()
    path = "/api/v1/namespaces/kube-system/configmaps/antrea-ca"
    authority = wait_for("the controller's CA", lambda: _data(lab, path).get("ca.crt"), seconds=60)
    host = lab.topology.nodes[0].address("eth0", lab.topology.versions[0])
    controller = f"https://{f'[{host}]' if ':' in host else host}:{NODE_PORT}"
    kube, antrea = place / "kube", place / "antrea"
    kube.write_bytes(_kubeconfig(token, control_plane.server_url(lab.topology), authority))
    antrea.write_bytes(_kubeconfig(token, controller, authority, "antrea.kube-system.svc"))
    config = msgspec.yaml.decode((INSTALLED / "antrea-agent.conf").read_bytes())
    config["ovsDatapathType"] = "netdev"
    config["featureGates"] |= dict.fromkeys(gates, True)
    (place / "conf").write_bytes(msgspec.yaml.encode(config))
    command: list[str | Path] = [
        INSTALLED / "install.sh",
        "--root",
        place / "root",
        "--config",
        place / "conf",
    ]
    command += ["--kubeconfig", kube, "--antrea-kubeconfig", antrea, "--ns", SPACE, "--nodename", name]
    run([*command, "--agent", Path(sys.prefix) / "bin/antrea-agent"])


def _data(lab: Lab, path: str) -> dict[str, str]:
    try:
        return dict(lab.api.get(path).get("data", {}))
    except Unavailable:
        return {}


def _kubeconfig(token: str, server: str, ca: str, server_name: str = "") -> bytes:
    end = {"server": server, "certificate-authority-data": base64.b64encode(ca.encode()).decode()}
    made = {
        "clusters": [
            {"name": "c", "cluster": end | ({"tls-server-name": server_name} if server_name else {})}
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    return msgspec.yaml.encode(made)
