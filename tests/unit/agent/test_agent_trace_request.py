"""What a traced packet is made of, and what may not be asked."""

from __future__ import annotations

import contextlib
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.agent.api.trace_request import Entered, Peer, TraceRequest, packet, request_of
from antrea.errors import Invalid

ENTERED = Entered(7, "0a:00:00:00:00:07", "0a:00:00:00:00:01", "10.10.0.7", "10.10.2.9")
TERM = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*(=[A-Za-z0-9_.\-:/+|]+)?")
TEXT = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="abin-_=,.:/+ \n'\";$()0123456789tcpudr", max_size=40),
    st.from_regex(r"(tcp|ip|arp|ipv6|in_port=p1|nw_src=10\.0\.0\.1)(,-?[a-z_]*=?[a-z0-9:./]*){0,3}", fullmatch=True),
    st.sampled_from(["shop/web-0", "10.0.0.1", "fd00::1", "antrea-gw0", "::ffff:10.0.0.1", "a/../b", "-generate"]),
)  # fmt: skip


def test_trace_request_knows_pods_addresses_and_ports() -> None:
    query = {"port": "antrea-gw0", "source": "::ffff:10.0.0.1", "destination": "shop/web-0", "flow": "tcp, tcp_dst=80"}  # fmt: skip
    assert request_of(query) == TraceRequest(
        4, Peer(port="antrea-gw0"), Peer(ip="10.0.0.1"), Peer("shop", "web-0"), ("tcp", "tcp_dst=80")
    )
    assert request_of({}) == TraceRequest(4)


@pytest.mark.parametrize(
    ("query", "family"),
    [
        ({"flow": "tcp6"}, 6),
        ({"flow": "udp"}, 4),
        ({"flow": "ipv6,ipv6_src=fd00::1"}, 6),
        ({"source": "fd00::1"}, 6),
        ({"destination": "fd00::1", "source": "shop/web"}, 6),
        ({"addressFamily": "6", "source": "shop/web"}, 6),
        ({"source": "shop/web"}, 4),
    ],
)
def test_trace_request_takes_the_family_from_whatever_tells_it(query: dict[str, str], family: int) -> None:
    assert request_of(query).family == family


@pytest.mark.parametrize(
    ("query", "field", "why"),
    [
        ({"port": "10.0.0.1"}, "port", "invalid input port format: 10.0.0.1 is an address, not a port or a Pod"),
        ({"port": "a/b/c"}, "port", "invalid input port format: 'a/b/c' is not <Namespace>/<name>"),
        ({"source": "/b"}, "source", "invalid source format: '/b' is not <Namespace>/<name>"),
        ({"source": "shop/.."}, "source", "invalid source format: 'shop/..' is not <Namespace>/<name>"),
        ({"destination": "a/"}, "destination", "invalid destination format: 'a/' is not <Namespace>/<name>"),
        ({"destination": "fe80::1%eth0"}, "destination", "invalid destination format: 'fe80::1%eth0' has a zone"),
        ({"flow": "tcp,-generate"}, "flow", "invalid flow format: '-generate' is neither a protocol nor <field>=<value>"),
        ({"flow": "tcp,,"}, "flow", "invalid flow format: '' is neither a protocol nor <field>=<value>"),
        ({"flow": "ip\n"}, "flow", None),
        ({"flow": "in_port(1),eth()"}, "flow", "invalid flow format: 'in_port(1)' is neither a protocol nor <field>=<value>"),
        ({"addressFamily": "5"}, "addressFamily", "invalid addressFamily '5': it must be 4 or 6"),
        ({"addressFamily": "4", "flow": "tcp6"}, "flow", "address family incompatible between flow and request: IPv6 and IPv4"),
        ({"source": "10.0.0.1", "destination": "fd00::1"}, "destination", "address family incompatible between destination and source: IPv6 and IPv4"),
        ({"port": "p1", "flow": "in_port=2"}, "flow", "duplicated 'in_port' in flow: --port sets it, too"),
        ({"source": "10.0.0.1", "flow": "arp"}, "flow", "source and destination must not be specified for non-IP packet"),
        ({"source": "10.0.0.1", "flow": "tcp,nw_src=10.0.0.2"}, "flow", "duplicated 'nw_src' in flow: --source sets it, too"),
        ({"destination": "a/b", "flow": "ipv6,ipv6_dst=fd00::1"}, "flow", "duplicated 'ipv6_dst' in flow: --destination sets it, too"),
    ],
)  # fmt: skip
def test_trace_request_names_what_is_wrong(query: dict[str, str], field: str, why: str | None) -> None:
    if why is None:
        assert request_of(query).terms == ("ip",)
        return
    with pytest.raises(Invalid) as no:
        request_of(query)
    assert (no.value.path, no.value.why) == (field, why)


@pytest.mark.parametrize(
    ("terms", "entered", "flow"),
    [
        ((), ENTERED, "in_port=7,dl_src=0a:00:00:00:00:07,dl_dst=0a:00:00:00:00:01,ip,nw_ttl=64,nw_src=10.10.0.7,nw_dst=10.10.2.9"),
        (("tcp", "tcp_dst=80", "nw_ttl=3"), ENTERED, "in_port=7,dl_src=0a:00:00:00:00:07,dl_dst=0a:00:00:00:00:01,tcp,tcp_dst=80,nw_ttl=3,nw_src=10.10.0.7,nw_dst=10.10.2.9"),
        (("in_port=9", "dl_src=0a:00:00:00:00:09", "eth_dst=0a:00:00:00:00:08"), Entered(7, "0a:00:00:00:00:07", "0a:00:00:00:00:01"), "in_port=9,dl_src=0a:00:00:00:00:09,eth_dst=0a:00:00:00:00:08"),
        (("arp",), Entered(7, "0a:00:00:00:00:07"), "in_port=7,dl_src=0a:00:00:00:00:07,arp"),
    ],
)  # fmt: skip
def test_trace_packet_is_written_as_upstream_writes_it(
    terms: tuple[str, ...], entered: Entered, flow: str
) -> None:
    assert packet(TraceRequest(4, terms=terms), entered) == flow


def test_trace_packet_of_ipv6_says_so_before_its_addresses() -> None:
    entered = Entered(7, "0a:00:00:00:00:07", "", "fd00::7", "fd00::8")
    assert packet(TraceRequest(6), entered) == (
        "in_port=7,dl_src=0a:00:00:00:00:07,ipv6,nw_ttl=64,ipv6_src=fd00::7,ipv6_dst=fd00::8"
    )


def test_trace_packet_has_a_hash_where_groups_choose_endpoints_by_it() -> None:
    """Without one, ofproto/trace ends at the group; equal packets have equal ones, as in the datapath."""
    balanced = msgspec.structs.replace(ENTERED, balanced=True)

    def hashes(*terms: str) -> list[str]:
        return [
            term
            for term in packet(TraceRequest(4, terms=terms), balanced).split(",")
            if term.startswith("dp_hash=")
        ]

    (first,), (again,), (other,) = (
        hashes("tcp", "tcp_src=1"),
        hashes("tcp", "tcp_src=1"),
        hashes("tcp", "tcp_src=2"),
    )
    assert first == again != other
    assert hashes("tcp", "dp_hash=7") == ["dp_hash=7"]
    assert packet(TraceRequest(4, terms=("arp",)), Entered(7, "0a:00:00:00:00:07", balanced=True)).endswith(
        ",arp"
    )


@given(
    port=TEXT, source=TEXT, destination=TEXT, flow=TEXT, addressFamily=st.sampled_from(["", "4", "6", "x"])
)
def test_trace_request_never_breaks_and_never_lets_through_what_is_no_term_of_a_packet(**query: str) -> None:
    with contextlib.suppress(Invalid):
        request = request_of(query)
        made = packet(request, ENTERED)
        assert all(TERM.fullmatch(term) for term in made.split(","))
        assert made.startswith(("in_port=", "dl_src=", "dl_dst=", "ip"))
        for peer in (request.port, request.source, request.destination):
            assert peer is None or ".." not in f"{peer.namespace}/{peer.name}".split("/")
