"""kube-proxy on a Node of the virtual machine, Services of both families, and what clients of them reach."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from kernel_traffic import TIMEOUT, accept_each, family
from vm_shape import DIRECTORY, KUBECTL_PORT, TOPOLOGY

from antrea.errors import Unavailable
from lab import artifacts, namespace, node_files, vm
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernel_node import KernelNode

MODULES = (
    "ip_vs",
    "ip_vs_rr",
    "xt_set",
    "ip_set_hash_ipport",
    "ip_set_hash_ip",
    "ip_set_bitmap_port",
    "ip_set_hash_ipportip",
    "nft_queue",
)
SECONDS = 6.0
"""After which a connection that nobody refuses counts as dropped: a SYN that is lost is sent again after 1 and 3 s."""
KINDS = {4: "IPv4", 6: "IPv6"}


class Way(NamedTuple):
    """From whose network a connection is made, where to, and by which of its addresses; empty: the kernel's choice."""

    netns: Path
    address: str
    port: int
    source: str = ""


def kubectl(*words: str, stdin: str | None = None) -> str:
    """As the cluster's administrator; beside the machine, where it takes a second instead of a minute and a half."""
    with (
        socket.create_connection((vm.HOST, KUBECTL_PORT), timeout=600) as stream,
        stream.makefile("rwb") as line,
    ):
        line.write(json.dumps([words, stdin]).encode() + b"\n")
        line.flush()
        output, error = json.loads(line.readline())
    if error:
        raise Unavailable(error)
    return str(output)


def apply(*objects: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns them as the API server has them."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    made = json.loads(kubectl("apply", "-f", "-", "-o", "json", stdin=listed))
    found: list[dict[str, Any]] = made.get("items", [made])  # one alone is printed by itself
    return found


def service(
    name: str, ports: Sequence[dict[str, Any]], endpoints: dict[int, str], **spec: Any
) -> list[dict[str, Any]]:
    """The Service, without selector, and its EndpointSlices by IP version."""
    both = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
    made = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {**both, "ports": ports, **spec},
    }
    targets = [
        {"name": port["name"], "port": port["targetPort"], "protocol": port["protocol"]} for port in ports
    ]
    slices = [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}{version}", "labels": {"kubernetes.io/service-name": name}},
            "addressType": KINDS[version],
            "ports": targets,
            "endpoints": [{"addresses": [endpoint], "conditions": {"ready": True}}],
        }
        for version, endpoint in endpoints.items()
    ]
    return [made, *slices]


@contextmanager
def kube_proxy(node: KernelNode, mode: str = "ipvs", **more: Any) -> Iterator[None]:
    """The real one, with these fields of its configuration on top; an AssertionError if it has ended by itself."""
    place = node.root / "run/kube-proxy"
    place.mkdir(exist_ok=True)
    config = node_files.kube_proxy(TOPOLOGY, node.name, mode) | more
    config["clientConnection"] = {"kubeconfig": "/run/kube-proxy/conf"}
    (place / "conf").write_text(Path(os.environ[DIRECTORY], "kubeconfig/kube-proxy.conf").read_text())
    (place / "config").write_text(yaml.safe_dump(config))
    words = node.words(artifacts.binaries(print).kube_proxy, "--config=/run/kube-proxy/config")
    with (place / "log").open("ab") as log, subprocess.Popen(words, stdout=log, stderr=log) as running:
        try:
            yield
            assert running.poll() is None, "kube-proxy has ended"
        except Exception as error:
            error.add_note(f"kube-proxy's status: {running.poll()}\n" + (place / "log").read_text()[-4000:])
            raise
        finally:
            running.kill()


@contextmanager
def serving(netns: Path, handlers: dict[int, Callable[[socket.socket], object]]) -> Iterator[None]:
    """Each connection to these ports, of either family, is handled, one after the other."""
    with ExitStack() as stack:
        for port, handle in handlers.items():
            with namespace.entered(netns):
                both = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
            stack.callback(both.close)
            stack.callback(both.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=accept_each, args=(both, handle), daemon=True).start()
        yield


def greeting(stream: socket.socket) -> None:
    stream.sendall(b"hello")


def answered(way: Way) -> bool:
    """Whether `greeting` comes, by one connection; False also where it is refused."""
    source = (way.source, 0) if way.source else None
    try:
        with namespace.entered(way.netns):
            stream = socket.create_connection((way.address, way.port), SECONDS, source)
        with stream:
            return stream.recv(64) == b"hello"
    except OSError:
        return False


def until_answered(ways: Sequence[Way], node: KernelNode) -> None:
    """By a connection of its own each time: one that begins before all rules of kube-proxy stand goes on without them."""
    for way in ways:
        try:
            wait_for(f"an answer to {way}", partial(answered, way), seconds=2 * TIMEOUT)
        except Unavailable as error:
            shown = [node.run(*words.split()) for words in ("cat /proc/net/ip_vs", "iptables-save -t nat")]
            error.add_note("\n".join([*shown, node.run("nft", "list", "table", "inet", "antrea")]))
            raise


def datagram(netns: Path, address: str, port: int, data: bytes) -> bytes:
    """The answer to it; it is sent again as resolvers do, since an answer that is held too long is dropped."""
    with namespace.entered(netns):
        end = socket.socket(family(address), socket.SOCK_DGRAM)
    with end:
        end.settimeout(SECONDS)
        end.connect((address, port))
        for _ in range(int(TIMEOUT // SECONDS)):
            end.send(data)
            with suppress(TimeoutError):
                return end.recv(4096)
    raise Unavailable(f"no answer from {address} port {port}")
