"""Suricata with the signatures of rules with l7Protocols judges real connections, in both families."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from certificates import SERVER as SERVER_AUTH
from certificates import made
from l7_client import CLIENT, SERVER
from netdev_switch import NetdevSwitch
from suricata_engine import Engine

from antrea.apis.controlplane import HTTPProtocol, L7Protocol, TLSProtocol
from antrea.features.network_policy.l7.configuration import TAPS
from antrea.features.network_policy.l7.rules import signatures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from conftest import Namespaces

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("suricata_root")]
"""The root is made first, which takes minutes on a fresh machine."""
TENANT = 5
ADDRESSES = {"client": ("10.9.0.1", "fd09::1"), "server": ("10.9.0.2", "fd09::2")}
MACS = {"client": "0a:00:00:00:00:01", "server": "0a:00:00:00:00:02"}
PUBLIC = L7Protocol(http=HTTPProtocol(method="GET", path="/public*"))
SHOP = L7Protocol(http=HTTPProtocol(host="*.shop.example"))
TLS = L7Protocol(tls=TLSProtocol(sni="a.example"))
OK, OK2, SERVER_HELLO = b"200 OK", bytes([1, 1, 5]), bytes([22, 3, 3, 0])
Exchange = tuple[bytes, ...]
Case = tuple[Exchange, ...]


def request(line: str, *headers: str) -> bytes:
    return "".join(f"{one}\r\n" for one in (line, *headers, "")).encode("latin1")


def one(line: str, *headers: str) -> Case:
    """A connection with one request."""
    return ((request(line, *headers),),)


GOOD, SECRET = request("GET /public HTTP/1.1", "Host: a"), request("GET /secret HTTP/1.1", "Host: a")
BY_HOST = "Host: www.shop.example"
ALLOWED: dict[str, Case] = {
    "public": ((GOOD,),),
    "in pieces": ((b"GE", b"T /pub", b"lic/x HT", b"TP/1.1\r\nHo", b"st: a\r\n\r\n"),),
    "query": one("GET /public?x=/../ HTTP/1.1", "Host: a"),
    "host": one("POST /h/1 HTTP/1.1", "X: y", "HOST: www.Shop.Example:80"),
    "whole URI": one("GET http://www.shop.example/h HTTP/1.1", BY_HOST),
    "many headers": one("GET /public HTTP/1.1", "Host: a", *["a: b"] * 1000),
    "many requests": ((GOOD,),) * 50,
}
DENIED: dict[str, Case] = {
    "secret": ((SECRET,),),
    "method": one("POST /public HTTP/1.1", "Host: a"),
    "lower case": one("get /public HTTP/1.1", "Host: a"),
    "dots": one("GET /public/../secret HTTP/1.1", "Host: a"),
    "escaped dots": one("GET /public/%2e%2E/secret HTTP/1.1", "Host: a"),
    "backslash": one(r"GET /public\..\secret HTTP/1.1", "Host: a"),
    "semicolon": one("GET /public/..;/secret HTTP/1.1", "Host: a"),
    "URI of another host": one("GET http://evil/h HTTP/1.1", BY_HOST),
    "two hosts": one("GET /h HTTP/1.1", BY_HOST, "Host: evil"),
    "no host": one("GET /h HTTP/1.1"),
    "host in a fold": one("GET /h HTTP/1.1", "Host: evil", " x", "Y: z", BY_HOST),
    "fold": one("GET /public HTTP/1.1", "Host: a", " b"),
    "two lengths": one("GET /public HTTP/1.1", "Host: a", "Content-Length: 5", "Content-Length: 6"),
    "length, chunks": one(
        "GET /public HTTP/1.1", "Host: a", "Content-Length: 5", "Transfer-Encoding: chunked"
    ),
    "space before colon": one("GET /public HTTP/1.1", "Host: a", "Transfer-Encoding : chunked"),
    "upgrade": one("GET /public HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: h2c"),
    "HTTP/0.9": ((b"GET /public\r\n\r\n",),),
    "long head": one("GET /public HTTP/1.1", "Host: a", *["X: " + "a" * 500] * 40),
    "secret with many headers": one("GET /secret HTTP/1.1", "Host: a", *["a: b"] * 2500),
    "no HTTP": ((b"hello there\r\nmore\r\n\r\n",),),
}
BODY = request("POST /x HTTP/1.1", BY_HOST, "Content-Length: 20000") + b"a" * 20000
CHUNKS = (
    request("POST /x HTTP/1.1", BY_HOST, "Transfer-Encoding: chunked")
    + b"4e20\r\n"
    + b"a" * 20000
    + b"\r\n0\r\n\r\n"
)
AFTER: dict[str, Case] = {
    "after": ((GOOD,), (SECRET,)),
    "after 400": (*((GOOD,),) * 400, (SECRET,)),
    "at once": ((GOOD + SECRET,),),
    "after a body": ((BODY,), (SECRET,)),
    "after chunks": ((CHUNKS,), (SECRET,)),
}
"""The last exchange of each asks for what is not allowed."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113, 4.1."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def headers2(stream: int, path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """A request in literals that no table has (RFC 7541, 6.2.2)."""
    pairs = ((b":method", b"GET"), (b":scheme", b"http"), (b":path", path), (b":authority", b"a"), *more)
    texts = [b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in pairs]
    return frame(1, 5, stream, b"".join(texts))


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
ALLOWED2: dict[str, Case] = {"public": ((PREFACE, headers2(1, b"/public")), (headers2(3, b"/public/2"),))}
DENIED2: dict[str, Case] = {
    "secret": ((PREFACE, headers2(1, b"/secret")),),
    "path in a value": ((PREFACE, headers2(1, b"/secret", (b"x", b"\r\n:path: /public"))),),
}


def hello(name: str | None) -> bytes:
    """A client's first message of TLS 1.3 with this server name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


NAMED = hello("a.example")
ALLOWED_TLS: dict[str, Case] = {
    "name": ((NAMED,),),
    "capitals": ((NAMED.replace(b"a.example", b"A.exAMple"),),),
    "in pieces": ((NAMED[:3], NAMED[3:70], NAMED[70:]),),
}
DENIED_TLS: dict[str, Case] = {
    "another name": ((hello("b.example"),),),
    "longer name": ((hello("a.example.evil"),),),
    "no name": ((hello(None),),),
}


class Node:
    """A client and a server at a userspace switch that sends what is TCP through the engine, as tenant 5."""

    def __init__(self, netns: Namespaces, switch: NetdevSwitch, log: Path) -> None:
        self._log = log
        self.spaces = {name: netns.make() for name in ADDRESSES}
        switch.start()
        switch.add_bridge("br0")
        for number, (name, space) in enumerate(self.spaces.items(), start=1):
            ipv4, ipv6 = ADDRESSES[name]
            netns.sh(
                f"ip link add p{name} type veth peer name eth0 netns {space} && ip link set p{name} up && "
                f"ip netns exec {space} sh -c 'ip link set eth0 address {MACS[name]} mtu 1450 up; ip addr add {ipv4}/24 dev eth0; "
                f"ip addr add {ipv6}/64 dev eth0 nodad; ethtool -K eth0 tx off >/dev/null 2>&1'"
            )
            switch.vsctl(
                "add-port",
                "br0",
                f"p{name}",
                "--",
                "set",
                "interface",
                f"p{name}",
                f"ofport_request={number}",
            )
        for number, tap in enumerate(TAPS, start=3):
            internal = ("type=internal", f"ofport_request={number}")
            switch.vsctl("add-port", "br0", tap, "--", "set", "interface", tap, *internal)
            netns.sh(f"sysctl -qw net.ipv6.conf.{tap}.disable_ipv6=1; ip link set {tap} up")
        flows = ["priority=1,in_port=1,actions=output:2", "priority=1,in_port=2,actions=output:1"]
        for number, mac in ((1, MACS["client"]), (2, MACS["server"])):
            for kind in ("tcp", "tcp6"):
                tag = f"push_vlan:0x8100,set_field:{0x1000 | TENANT}->vlan_vid"
                flows.append(f"priority=10,in_port={number},{kind},actions={tag},output:3")
            back = f"dl_vlan={TENANT},dl_dst={mac},actions=pop_vlan,output:{number}"
            flows += [f"priority=10,in_port={port},{back}" for port in (3, 4)]
        for flow in flows:
            switch.ofctl("add-flow", "br0", flow)

    def served(self) -> set[bytes]:
        """First lines of requests that have come to the server."""
        return set(self._log.read_bytes().splitlines()) if self._log.exists() else set()

    def asked(
        self, cases: Mapping[str, Case], family: int, port: int = 80, mark: bytes = OK, seconds: float = 30
    ) -> dict[str, tuple[int, str]]:
        """By name how many answers came, and how the connection ended."""
        text = json.dumps(
            {name: [[chunk.hex() for chunk in exchange] for exchange in case] for name, case in cases.items()}
        )
        words = [
            sys.executable,
            "-c",
            CLIENT,
            ADDRESSES["server"][family],
            str(port),
            mark.hex(),
            str(seconds),
        ]
        within = ["ip", "netns", "exec", self.spaces["client"], *words]
        done = subprocess.run(within, input=text, capture_output=True, text=True, check=True, timeout=1500)
        return {name: (count, end) for name, (count, end) in json.loads(done.stdout).items()}


@pytest.fixture
def node(netns: Namespaces, tmp_path: Path) -> Iterator[Node]:
    switch = NetdevSwitch()
    try:
        log = tmp_path / "requests"
        certificate = made("a.example", usage=SERVER_AUTH)
        log.with_suffix(".pem").write_text(certificate.pem + certificate.key_pem)
        found = Node(netns, switch, log)
        with netns.serving(found.spaces["server"], SERVER.replace("LOG", str(log))):
            yield found
    finally:
        switch.stop()


@pytest.mark.wide
@pytest.mark.parametrize("family", [0, 1], ids=["ipv4", "ipv6"])
def test_each_request_of_a_connection_is_judged(node: Node, family: int) -> None:
    with Engine({TENANT: signatures((PUBLIC, SHOP, TLS), logs=True)}) as engine:
        engine.start()
        expected = {name: (len(case), "open") for name, case in ALLOWED.items()}
        assert node.asked(ALLOWED, family) == expected
        served = node.served()
        assert b"GET /public HTTP/1.1" in served
        assert node.asked(DENIED, family) == dict.fromkeys(DENIED, (0, "reset"))
        assert node.served() - served == {b"hello there"}, (
            "the first bytes of what is no HTTP pass, and no request does"
        )
        assert node.asked(AFTER, family) == {name: (len(case) - 1, "reset") for name, case in AFTER.items()}
        behind = node.asked({"body": ((BODY + SECRET,), ())}, family, seconds=2)
        assert behind["body"][1] in {"reset", "silent"}, (
            "a reset that crosses an answer is too old for the client"
        )
        assert not any(b"secret" in line for line in node.served())
        assert node.asked(ALLOWED2, family, 81, OK2) == {"public": (2, "open")}
        assert node.asked(DENIED2, family, 81, OK2) == dict.fromkeys(DENIED2, (0, "reset"))
        assert node.asked(ALLOWED_TLS, family, 443, SERVER_HELLO) == dict.fromkeys(ALLOWED_TLS, (1, "open"))
        assert node.asked(DENIED_TLS, family, 443, SERVER_HELLO) == dict.fromkeys(DENIED_TLS, (0, "reset"))


@pytest.mark.parametrize("family", [0, 1], ids=["ipv4", "ipv6"])
def test_a_host_that_is_any_takes_addresses_and_requests_without_one(node: Node, family: int) -> None:
    star = L7Protocol(http=HTTPProtocol(host="*", path="/echo*", method="GET"))
    passes = {
        "address": one("GET /echo?msg=1 HTTP/1.1", f"Host: [{ADDRESSES['server'][1]}]:8080"),
        "HTTP/1.0": one("GET /echo?msg=1 HTTP/1.0"),
        "name": one("GET /echo HTTP/1.1", "Host: foo.example"),
        "URI": one("GET http://[fd00::7]/echo HTTP/1.1", "Host: [fd00::7]"),
    }
    resets = {"path": one("GET /x HTTP/1.1", "Host: [fd00::7]"), "method": one("POST /echo HTTP/1.0")}
    with Engine({TENANT: signatures((star,), logs=False)}) as engine:
        engine.start()
        assert node.asked(passes, family) == dict.fromkeys(passes, (1, "open"))
        assert node.asked(resets, family) == dict.fromkeys(resets, (0, "reset"))


@pytest.mark.wide
def test_a_rule_on_one_protocol_allows_no_other(node: Node) -> None:
    public, named = {"x": ((GOOD,),)}, {"x": ((NAMED,),)}
    with Engine({TENANT: signatures((PUBLIC,), logs=False)}) as engine:
        engine.start()
        assert node.asked(named, 0, 443, SERVER_HELLO) == {"x": (0, "reset")}
        assert node.asked(public, 0) == {"x": (1, "open")}
        engine.write(TENANT, signatures((TLS,), logs=False))
        assert engine.reload(TENANT) == "OK"
        assert node.asked(public, 0) == {"x": (0, "reset")}
        assert node.asked(named, 0, 443, SERVER_HELLO) == {"x": (1, "open")}


@pytest.mark.wide
def test_a_connection_is_closed_without_an_engine_and_bad_rules_change_none(node: Node) -> None:
    public, nothing = {"x": ((GOOD,),)}, {"x": (0, "silent")}
    with Engine({TENANT: signatures((PUBLIC,), logs=False)}) as engine:
        assert node.asked(public, 0, seconds=2) == nothing
        engine.start()
        assert node.asked(public, 0) == {"x": (1, "open")}
        engine.write(TENANT, "reject this is no signature\n")
        assert engine.reload(TENANT) == "NOK"
        assert node.asked({**public, "y": ((SECRET,),)}, 0) == {"x": (1, "open"), "y": (0, "reset")}
        engine.write(TENANT, signatures((SHOP,), logs=False))
        assert engine.reload(TENANT) == "OK"
        assert node.asked(public, 0) == {"x": (0, "reset")}
        engine.kill()
        assert node.asked(public, 0, seconds=2) == nothing


@pytest.mark.wide
@pytest.mark.parametrize(
    "text", ['"; sid:9;) pass ip any any', "/\\E.*", "\n\r\t\0", "$(x)`y`", "é\u2028\U0001f600", ")*+(?#"]
)
def test_text_of_users_leaves_the_signatures_whole(text: str) -> None:
    rows = (
        L7Protocol(http=HTTPProtocol(host=text, method=text, path=text)),
        L7Protocol(tls=TLSProtocol(sni=text)),
    )
    with Engine({TENANT: signatures(rows, logs=True)}) as engine:
        assert engine.problems() == ""
