"""Server names of TLS, calls of gRPC, look-ups of DNS and VLAN tags in the agent as it runs: real packets, a real switch and Suricata."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from certificates import SERVER, made
from test_host_l7_flow_export import annotate, endpoints, engine_reads, world
from test_host_traffic_control import ADDRESSES, MACS, flows, receiver

from antrea.features.l7_flow_export.agent import TAP

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces
    from test_host_l7_flow_export import World

    from antrea.apis.flow import FlowRecord

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600), pytest.mark.usefixtures("suricata_root")]
SOL_PACKET, PACKET_AUXDATA = 263, 8
RESOLVER = ("10.96.0.10", "fd96::a")
SERVERS = """
import grpc, socket, ssl, sys, threading
from concurrent import futures
class Cart(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == "/shop.Cart/Add":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"ok")
        return grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(grpc.StatusCode.NOT_FOUND, "no"))
carts = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Cart()])
assert carts.add_insecure_port("[::]:50051")
carts.start()
def bound(kind, port):
    found = socket.socket(socket.AF_INET6, kind)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("::", port))
    return found
def resolve(port):
    names = bound(socket.SOCK_DGRAM, port)
    while True:
        asked, peer = names.recvfrom(4096)
        answer = b"\\xc0\\x0c\\0\\x01\\0\\x01\\0\\0\\0\\x1e\\0\\x04" + socket.inet_aton("192.0.2.9")
        names.sendto(asked[:2] + bytes.fromhex("8180 0001 0001 0000 0000") + asked[12:] + answer, peer)
def keep_secrets():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("PAIR")
    plain = bound(socket.SOCK_STREAM, 8443)
    plain.listen()
    while True:
        peer = plain.accept()[0]
        with context.wrap_socket(peer, server_side=True) as secret:
            secret.sendall(secret.recv(100))
for work, more in ((resolve, (53,)), (resolve, (5353,)), (keep_secrets, ())):
    threading.Thread(target=work, args=more, daemon=True).start()
print("listening", flush=True)
threading.Event().wait()
"""
"""gRPC at port 50051, TLS at 8443, DNS at 53 and 5353. PAIR stands for a file with certificate and key."""
GRPC = """
import grpc, sys
with grpc.insecure_channel(sys.argv[1], [("grpc.default_authority", "cart.shop:50051")]) as channel:
    assert channel.unary_unary("/shop.Cart/Add")(b"x", timeout=20) == b"ok"
    try:
        channel.unary_unary("/shop.Cart/Lose")(b"x", timeout=20)
    except grpc.RpcError as why:
        assert why.code() is grpc.StatusCode.NOT_FOUND
"""
TLS = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with socket.create_connection((sys.argv[1], 8443), timeout=20) as plain:
    with context.wrap_socket(plain, server_hostname="secret.example") as secret:
        secret.sendall(b"x")
        assert secret.recv(1) == b"x"
"""
DNS = """
import socket, sys
asked = bytes.fromhex("0007 0100 0001 0000 0000 0000") + b"\\3www\\7example\\3org\\0\\0\\1\\0\\1"
with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM) as found:
    found.settimeout(20)
    found.connect((sys.argv[1], int(sys.argv[2])))
    found.send(asked)
    assert found.recv(4096)[-4:] == socket.inet_aton("192.0.2.9")
"""


async def run(found: World, program: str, *words: str) -> None:
    """As Pod a."""
    command = ["ip", "netns", "exec", found.pods["a"], sys.executable, "-c", program, *words]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)


async def requests(found: World, protocol: str, address: str, cluster: str = "") -> dict[str, Any]:
    """The requests of the first records of this protocol to this address, as many as there are by then."""

    def those() -> list[FlowRecord]:
        ends = [
            one for one in found.got if (one.destination_ip, one.destination_cluster_ip) == (address, cluster)
        ]
        return [one for one in ends if one.app_protocol_name == protocol and one.http_vals]

    await found.agent.until(lambda _: those(), f"a record of {protocol} to {address}")
    whole: dict[str, Any] = {}
    for one in those():
        assert (one.source_pod_name, one.destination_pod_name) == ("a", "b")
        assert one.protocol_identifier == (17 if protocol == "dns" else 6)
        whole |= json.loads(one.http_vals)
    return whole


async def test_names_of_tls_calls_of_grpc_and_look_ups_come_with_the_records_of_their_connections(
    netns: Namespaces, tmp_path: Path
) -> None:
    secret = made("secret.example", usage=SERVER)
    (tmp_path / "pair").write_text(secret.pem + secret.key_pem)
    async with world(netns, tmp_path) as found:
        for number, ip in enumerate(RESOLVER):
            endpoints(found.agent.api, number, ip, name="dns", protocol="UDP", ports=(53, 5353))
        annotate(found.agent.api, "a", "egress")
        with netns.serving(found.pods["b"], SERVERS.replace("PAIR", str(tmp_path / "pair"))):
            for six in (0, 1):
                await names_come(found, six)


async def names_come(found: World, six: int) -> None:
    pod, resolver = ADDRESSES["b"][six], RESOLVER[six]
    await found.agent.until(lambda _: engine_reads(found, pod), "the engine reads requests")
    await found.agent.until(lambda _: flows(found.agent, f"{resolver}", "ServiceLB"), "the Service is there")
    await run(found, TLS, pod)
    await run(found, GRPC, f"ipv{'6' if six else '4'}:{f'[{pod}]' if six else pod}:50051")
    await run(found, DNS, pod, "53")
    await run(found, DNS, resolver, "53")
    assert await requests(found, "tls", pod) == {"0": {"sni": "secret.example", "version": "TLS 1.3"}}
    looked_up = {"rrname": "www.example.org", "rrtype": "A", "rcode": "NOERROR", "answers": ["192.0.2.9"]}
    assert await requests(found, "dns", pod) == {"7": looked_up}
    assert await requests(found, "dns", pod, resolver) == {"7": looked_up}
    await found.agent.until(
        lambda _: calls(found, pod) == {"/shop.Cart/Add": (200, 0), "/shop.Cart/Lose": (200, 5)}, "both calls"
    )


def calls(found: World, pod: str) -> dict[str, tuple[int, int]]:
    """Status of HTTP and of gRPC by URL."""
    texts = [
        one.http_vals
        for one in found.got
        if one.destination_ip == pod and one.destination_transport_port == 50051
    ]
    each = [request for text in texts if text for request in json.loads(text).values()]
    assert all(
        (one["hostname"], one["http_method"], one["protocol"]) == ("cart.shop:50051", "POST", "HTTP/2")
        for one in each
    )
    assert all(one["http_content_type"] == "application/grpc" for one in each)
    return {one["url"]: (one["status"], one["grpc_status"]) for one in each}


async def test_requests_in_frames_with_a_vlan_tag_come_with_the_records_of_their_connections(
    netns: Namespaces, tmp_path: Path
) -> None:
    """The copies are tagged as the frames of the Pods are."""
    async with world(netns, tmp_path) as found:
        tag(netns, found)
        annotate(found.agent.api, "a", "both")
        for six in (0, 1):
            pod = ADDRESSES["b"][six]
            await found.agent.until(lambda _: engine_reads(found, pod), "the engine reads requests")  # noqa: B023
            with receiver(TAP) as copies:
                copies.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
                await found.ask(pod, 8080, f"/tagged/{six}")
                assert await asyncio.to_thread(tags, copies) == {7}
            record, asked = await found.requests(f"/tagged/{six}")
            assert (record.source_pod_name, record.destination_pod_name, record.destination_ip) == (
                "a",
                "b",
                pod,
            )
            assert asked["0"]["status"] == 301


def tags(copies: socket.socket) -> set[int]:
    """VLANs of the frames that have come, but for those of the interface's own. Source: packet(7), PACKET_AUXDATA; struct tpacket_auxdata"""
    found = set()
    while select.select([copies], [], [], 0.5)[0]:
        _, ancillary, _, origin = copies.recvmsg(2048, socket.CMSG_SPACE(20))
        if origin[2] == socket.PACKET_OUTGOING:
            continue
        found |= {
            struct.unpack("=3I4H", data)[5] & 0xFFF for _, kind, data in ancillary if kind == PACKET_AUXDATA
        }
    return found


def tag(netns: Namespaces, found: World) -> None:
    """What both Pods send goes through a bridge that tags it, and what they get through one that takes the tag away."""
    switch = found.agent.switch
    switch.vsctl(
        "add-br", "br-tag", "--", "set", "bridge", "br-tag", "datapath_type=netdev", "fail_mode=secure"
    )
    for name, other in (("a", "b"), ("b", "a")):
        ids = switch.vsctl("get", "port", f"pod{name}", "external_ids").strip()
        peers = (("br-int", f"in{name}", f"out{name}"), ("br-tag", f"out{name}", f"in{name}"))
        switch.vsctl("del-port", f"pod{name}", "--", "add-port", "br-tag", f"pod{name}")
        for bridge, end, peer in peers:
            more = () if bridge == "br-tag" else ("--", "set", "port", end, f"external_ids={ids}")
            patch = ("type=patch", f"options:peer={peer}")
            switch.vsctl("add-port", bridge, end, "--", "set", "interface", end, *patch, *more)
        pod, out = (
            switch.vsctl("get", "interface", port, "ofport").strip() for port in (f"pod{name}", f"out{name}")
        )
        tagged = f"push_vlan:0x8100,set_field:0x1007->vlan_vid,output:{out}"
        for flow in (
            f"in_port={pod},actions={tagged}",
            f"in_port={out},vlan_tci=0x1000/0x1000,actions=pop_vlan,output:{pod}",
        ):
            switch.ofctl("add-flow", "br-tag", "-O", "OpenFlow15", flow)
        known = (f"ip neigh replace {ip} lladdr {MACS[other]} dev eth0" for ip in ADDRESSES[other])
        netns.sh("; ".join(known), found.pods[name])


LIES = {
    "/short": "Content-Length: 1000000", "/long": "Content-Length: 1", "/negative": "Content-Length: -5",
    "/huge": "Content-Length: 99999999999999999999", "/both": "Content-Length: 3\r\nTransfer-Encoding: chunked",
}  # fmt: skip
"""Paths, and what is said of a body of another length."""
HOSTILE = b"/x\"'<script>alert(1)</script>&\\u0000%00\x01\x1b[2J\x7f\xff"
LIAR = """
import json, socket, sys
lies = json.loads(sys.argv[1])
server = socket.create_server(("::", 8082), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    peer = server.accept()[0]
    with peer:
        got = b""
        while b"\\r\\n\\r\\n" not in got:
            got += peer.recv(65536)
        lie = next((lie for path, lie in lies.items() if path.encode() in got), "Content-Length: 5000")
        peer.sendall(f"HTTP/1.1 200 OK\\r\\n{lie}\\r\\n\\r\\n".encode() + b"x" * 5000)
"""
ASK_RAW = """
import socket, sys
with socket.create_connection((sys.argv[1], 8082), timeout=20) as peer:
    peer.sendall(bytes.fromhex(sys.argv[2]))
    peer.shutdown(socket.SHUT_WR)
    while peer.recv(65536):
        pass
"""


async def test_requests_that_lie_about_their_length_or_are_hostile_are_text_and_hide_no_other(
    netns: Namespaces, tmp_path: Path
) -> None:
    """Both ends lie; the engine goes on."""
    liar = LIAR.replace("sys.argv[1]", repr(json.dumps(LIES)))
    async with world(netns, tmp_path) as found:
        annotate(found.agent.api, "a", "egress")
        with netns.serving(found.pods["b"], liar):
            for six in (0, 1):
                pod = ADDRESSES["b"][six]
                await found.agent.until(lambda _: engine_reads(found, pod), "the engine reads requests")  # noqa: B023
                engines = found.container.engines()
                for path, lie in LIES.items():
                    said = f"POST {path} HTTP/1.1\r\nHost: a.example\r\n{lie}\r\n\r\n".encode()
                    await run(found, ASK_RAW, pod, (said + b"y" * 100).hex())
                await run(found, ASK_RAW, pod, (b"GET " + HOSTILE + b' HTTP/1.1\r\nHost: <b>"\r\n\r\n').hex())
                await run(found, ASK_RAW, pod, b"GET /honest HTTP/1.1\r\nHost: a\r\n\r\n".hex())
                await found.agent.until(lambda _: all_come(found, pod), "a record of each request")  # noqa: B023
                assert found.container.engines() == engines
                found.got.clear()


def all_come(found: World, pod: str) -> bool:
    texts = [
        one.http_vals
        for one in found.got
        if (one.destination_ip, one.destination_transport_port) == (pod, 8082)
    ]
    assert not any(one in text for text in texts for one in "<>&\x01\x1b\x7f")
    each = [request for text in texts if text for request in json.loads(text).values()]
    assert all(0 <= one["length"] < 100_000 for one in each)  # what was seen, whatever was said
    urls = {one["url"] for one in each}
    hostile = any(url.startswith("/x\"'<script>alert(1)</script>&") for url in urls)
    honest = any((one["url"], one["status"]) == ("/honest", 200) for one in each)
    return hostile and honest and set(LIES) <= urls
