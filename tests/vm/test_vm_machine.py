"""A machine outside the cluster, with a kernel and a network card of its own: policies hold on it, over its reboot too."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine_server
import pytest
import vm_cluster
import yaml
from vm_shape import API_SERVER, CONTROLLER_PORT, TOPOLOGY

from lab import artifacts, cluster, namespace, vm
from lab.api import Api
from lab.process import run, tail, wait_for
from lab.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.wide
HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / "build/external-node"
SPACE, NAME, TAP = "vm-ns", "vm1", "machine"
OURS, ROUTERS = ("192.0.2.2", "2001:db8:9::2"), ("192.0.2.1", "2001:db8:9::1")
ALLOWED, DENIED = machine_server.PORTS
OUT_ALLOWED, OUT_DENIED = 9001, 9002
TIMEOUT = 400.0
"""Seconds until the machine has done something: its processor is emulated."""
POLICIES = f"/apis/crd.antrea.io/v1beta1/namespaces/{SPACE}/networkpolicies"


class Machine:
    """Runs from `start` until `end`; `home` is the network at the other end of its cable."""

    def __init__(self, stock: vm.Kernel, home: Path, disk: Path) -> None:
        self._stock, self._home, self._disk = stock, home, disk
        self.console = ""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        networks = (f"{OURS[0]}/24", f"{OURS[1]}/64")
        words = [str(HERE / "machine_boot.sh"), *networks, *ROUTERS, str(HERE / "machine_server.py")]
        self._thread = threading.Thread(target=self._run, args=(words,))
        self._thread.start()

    def _run(self, words: list[str]) -> None:
        try:
            _, self.console = vm.run(
                self._stock, words, timeout=1500, memory="2G", netns=self._home, tap=TAP, disk=self._disk
            )
        except Exception as error:
            self.console = str(error)

    def end(self) -> None:
        """Without a farewell to agent and switch."""
        assert self._thread is not None
        wait_for("its end", partial(self._ended), seconds=TIMEOUT, step=1)
        self._thread.join()
        print(self.console)

    def _ended(self) -> bool:
        assert self._thread is not None
        if self._thread.is_alive():
            self._sent("end")
        return not self._thread.is_alive()

    def told(self, command: str) -> str | None:
        """Output of a shell command in it; None while it does not answer."""
        return self._sent(command)

    def _sent(self, command: str) -> str | None:
        try:
            with namespace.connect(self._home, (OURS[0], machine_server.TOLD), seconds=2) as peer:
                peer.settimeout(60)
                peer.sendall(command.encode() + b"\n")
                with peer.makefile("rb") as whole:
                    return whole.read().decode()
        except OSError:
            return None

    def opens(self, address: str, port: int, seconds: float = 2) -> bool:
        """Whether the other end of its cable reaches a port of it."""
        try:
            namespace.connect(self._home, (address, port), seconds=seconds).close()
        except OSError:
            return False
        return True

    def reaches(self, address: str, port: int) -> bool:
        """Whether it gets at a port of the other end."""
        found = self.told(f"timeout 3 bash -c '</dev/tcp/{address}/{port}' 2>/dev/null && echo reached")
        return bool(found and "reached" in found)

    def settings(self) -> tuple[Any, ...]:
        """MAC, MTU, addresses and routes of eth0."""
        shown = self.told(
            "ip -j addr show dev eth0; ip -j route show dev eth0; ip -j -6 route show dev eth0 default"
        )
        assert shown is not None
        (link,), routes, routes6 = (json.loads(line) for line in shown.splitlines())
        held = {f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["scope"] == "global"}
        ways = {(r["dst"], r.get("gateway", "")) for r in (*routes, *routes6)}
        return link["address"], link["mtu"], held, ways

    def is_connected(self) -> bool:
        found = self.told("ovs-vsctl --timeout=20 list-ports br-int; ls /sys/class/net")
        words = (found or "").split()
        return words.count("eth0~") == 2 and words.count("eth0") == 2


@pytest.fixture
def record() -> Iterator[Record]:
    record = Record(f"machine{os.getpid()}")
    try:
        yield record
    finally:
        print(tail(record.directory / f"logs/{vm_cluster.CONTROLLER}.log", 60))
        cluster.down(record)


@pytest.fixture
def api(record: Record) -> Api:
    """Of a cluster with the machine's account, and a cable for it."""
    with record.locked():
        home = vm_cluster.serve(record, "ExternalNode")
        lines = [f"ip tuntap add dev {TAP} mode tap", f"ip address add {ROUTERS[0]}/24 dev {TAP}"]
        lines += [f"ip address add {ROUTERS[1]}/64 dev {TAP} nodad", f"ip link set {TAP} up"]
        namespace.script(record, home, lines)
    found = Api(record, TOPOLOGY, artifacts.binaries(print).kubectl)
    found.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}))
    found.apply((INSTALLED / "rbac.yml").read_text())
    return found


@pytest.fixture
def machine(stock: vm.Kernel, record: Record, api: Api, tmp_path: Path) -> Iterator[Machine]:
    """With a disk on which install.sh has put the agent."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", "antrea"], check=True)
    token = api.kubectl("create", "token", "vm-agent", f"--namespace={SPACE}").strip()
    authority = (record.directory / "pki/ca.crt").read_text()
    wait_for("the controller's CA", lambda: _controller_ca(api), seconds=60)
    ends = {"kube": (f"https://{API_SERVER}:6443", authority, ""), "antrea": _controller_end(api)}
    for name, (server, ca, server_name) in ends.items():
        (tmp_path / name).write_text(_kubeconfig(token, server, ca, server_name))
    root = tmp_path / "root"
    root.mkdir()
    words = [INSTALLED / "install.sh", "--root", root, "--config", INSTALLED / "antrea-agent.conf"]
    words += ["--kubeconfig", tmp_path / "kube", "--antrea-kubeconfig", tmp_path / "antrea"]
    words += ["--ns", SPACE, "--nodename", NAME, "--agent", Path(sys.prefix) / "bin/antrea-agent"]
    run([str(word) for word in words])
    disk = tmp_path / "disk"
    run(["mkfs.ext4", "-q", "-d", str(root), str(disk), "64M"])
    found = Machine(stock, namespace.path(record, TOPOLOGY.control_plane.name), disk)
    yield found
    found.end()


def _controller_ca(api: Api) -> str:
    try:
        found = api.get("/api/v1/namespaces/kube-system/configmaps/antrea-ca")
    except Exception:
        return ""
    return str(found.get("data", {}).get("ca.crt", ""))


def _controller_end(api: Api) -> tuple[str, str, str]:
    return f"https://{API_SERVER}:{CONTROLLER_PORT}", _controller_ca(api), "antrea.kube-system.svc"


def _kubeconfig(token: str, server: str, ca: str, server_name: str) -> str:
    end = {"server": server, "certificate-authority-data": base64.b64encode(ca.encode()).decode()}
    if server_name:
        end["tls-server-name"] = server_name
    made = {
        "clusters": [{"name": "c", "cluster": end}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    return yaml.safe_dump(made)


@contextmanager
def serving(home: Path, *ports: int) -> Iterator[None]:
    """The other end of the cable accepts connections."""
    with namespace.entered(home):
        listeners = [machine_server.listening(port) for port in ports]
    for one in listeners:
        threading.Thread(target=_accepting, args=(one,), daemon=True).start()
    try:
        yield
    finally:
        for one in listeners:
            one.close()


def _accepting(listener: Any) -> None:
    try:
        machine_server.accepting(listener)
    except OSError:
        return


@contextmanager
def never_open(machine: Machine, port: int) -> Iterator[Callable[[], int]]:
    """No connection to that port is made while the block lasts; it is given how often that was tried."""
    made: list[str] = []
    tried, over = [0], threading.Event()

    def trying(address: str) -> None:
        while not over.is_set():
            if machine.opens(address, port, seconds=1):
                made.append(address)
            tried[0] += 1
            time.sleep(0.05)

    threads = [threading.Thread(target=trying, args=(address,)) for address in OURS]
    for one in threads:
        one.start()
    try:
        yield lambda: tried[0]
    finally:
        over.set()
        for one in threads:
            one.join()
    assert made == []


def objects() -> str:
    meta = {"name": NAME, "namespace": SPACE, "labels": {"role": "db"}}
    node = {"apiVersion": "crd.antrea.io/v1alpha1", "kind": "ExternalNode", "metadata": meta}
    node["spec"] = {"interfaces": [{"ips": list(OURS)}]}
    meta = {"name": "p", "namespace": SPACE}
    policy = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy", "metadata": meta}
    policy["spec"] = {
        "priority": 5,
        "appliedTo": [{"externalEntitySelector": {"matchLabels": {"role": "db"}}}],
        "ingress": [{"action": "Drop", "ports": [{"protocol": "TCP", "port": DENIED}]}],
        "egress": [{"action": "Drop", "ports": [{"protocol": "TCP", "port": OUT_DENIED}]}],
    }
    return yaml.safe_dump_all([node, policy])


def hold(machine: Machine) -> bool:
    """Whether packets are judged as the policy says, in both families and directions."""
    judged = [
        (machine.opens(ours, ALLOWED), machine.opens(ours, DENIED), machine.reaches(router, OUT_ALLOWED),
         machine.reaches(router, OUT_DENIED))
        for ours, router in zip(OURS, ROUTERS, strict=True)
    ]  # fmt: skip
    print(judged)
    return judged == [(True, False, True, False)] * 2


def test_policies_hold_on_a_machine_and_over_its_reboot(machine: Machine, api: Api, record: Record) -> None:
    """On the kernel datapath. After the boot nothing enters before they are enforced; the interface comes back with what it had."""
    home = namespace.path(record, TOPOLOGY.control_plane.name)
    with serving(home, OUT_ALLOWED, OUT_DENIED):
        machine.start()
        wait_for("the machine", lambda: machine.told("true") is not None, seconds=TIMEOUT, step=1)
        before = machine.settings()
        assert all(machine.opens(ours, port) for ours in OURS for port in (ALLOWED, DENIED))
        api.apply(objects())
        wait_for("its interface behind the switch", machine.is_connected, seconds=TIMEOUT, step=1)
        wait_for("the policy", lambda: hold(machine), seconds=TIMEOUT, step=1)
        wait_for("its status", lambda: _phase(api) == "Realized", seconds=TIMEOUT, step=1)
        assert machine.settings() == before
        assert "system@ovs-system" in str(machine.told("ovs-appctl dpif/show"))
        machine.end()
        with never_open(machine, DENIED) as tried:
            machine.start()
            wait_for("the machine again", lambda: machine.told("true") is not None, seconds=TIMEOUT, step=1)
            told = tried()
            wait_for(
                "what is allowed",
                lambda: all(machine.opens(a, ALLOWED) for a in OURS),
                seconds=TIMEOUT,
                step=1,
            )
            assert tried() > told
            assert machine.is_connected()
            assert machine.settings() == before
            assert hold(machine)
        assert "antrea-boot" not in str(machine.told("nft list tables"))
        api.kubectl("delete", "externalnode", NAME, f"--namespace={SPACE}")
        wait_for(
            "the interface given back", lambda: "eth0~" not in str(machine.told("ls /sys/class/net; echo x")),
            seconds=TIMEOUT, step=1,
        )  # fmt: skip
        wait_for("its addresses", lambda: machine.settings() == before, seconds=60, step=1)
        assert all(machine.opens(ours, DENIED) for ours in OURS)


def _phase(api: Api) -> str:
    return str(api.get(f"{POLICIES}/p").get("status", {}).get("phase", ""))
