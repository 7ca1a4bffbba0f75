"""What `antctl explain` says of a request where rules have application protocols."""

from __future__ import annotations

import re
from typing import Any

import pytest
from explain_world import native, rule, world
from hypothesis import given
from hypothesis import strategies as st

from antrea.apis import controlplane as cp
from antrea.errors import Invalid
from antrea.explain.answer import Answer, answer, packet_of
from antrea.explain.l7 import Request, _matches, request_of
from antrea.explain.world import World
from antrea.features.network_policy.l7.pattern import IN_HOST, wildcard

PUBLIC = {"http": {"method": "GET", "path": "/public*"}}
SHOP = {"http": {"host": "*.shop.example"}}
TLS = {"tls": {"sni": "a.example"}}


def asked(*protocols: Any, request: str = "", server_name: str = "") -> Answer:
    found = world(cluster_policies=[native("web", rule("Allow", l7Protocols=list(protocols)))])
    whole = World(found.objects, found.proxy, ("L7NetworkPolicy",))
    packet = packet_of(
        whole, "a/client", "a/web", "80/tcp", v=0, source_port=0, request=request_of(request, server_name)
    )
    return answer(whole, packet)


@pytest.mark.parametrize(
    ("request_", "verdict"),
    [
        ("GET /public/x?y=/../", "Allow"),
        ("GET http://any.example/public", "Allow"),
        ("POST http://WWW.shop.example:8080/cart", "Allow"),
        ("POST /public", "Reject"),
        ("get /public", "Reject"),
        ("GET /secret", "Reject"),
        ("GET /public/../secret", "Reject"),
        ("GET /public/%2e%2e/secret", "Reject"),
        ("POST http://shop.example/", "Reject"),
    ],
)
def test_a_request_is_allowed_or_reset(request_: str, verdict: str) -> None:
    found = asked(PUBLIC, SHOP, request=request_)
    assert found.verdict == verdict
    (why,) = [one.why for one in (*found.egress.silent, *found.ingress.silent)]
    assert ("do not allow" in why) == (verdict == "Reject")


@pytest.mark.parametrize("host", ["", "*", "**"])
@pytest.mark.parametrize(
    ("request_", "verdict"),
    [
        ("GET /echo", "Allow"),
        ("GET http://[fd00:10::7]:8080/echo?msg=1", "Allow"),
        ("GET http://foo.example/echo", "Allow"),
        ("GET /x", "Reject"),
    ],
)
def test_a_host_that_is_any_asks_for_none(host: str, request_: str, verdict: str) -> None:
    assert asked({"http": {"host": host, "path": "/echo*"}}, request=request_).verdict == verdict


def test_a_handshake_is_judged_by_its_server_name_and_by_no_rule_on_requests() -> None:
    assert asked(TLS, server_name="A.example").verdict == "Allow"
    assert asked(TLS, server_name="b.example").verdict == "Reject"
    assert asked(PUBLIC, server_name="a.example").verdict == "Reject"
    assert asked(TLS, request="GET /").verdict == "Reject"


def test_what_would_turn_the_verdict_over_is_said() -> None:
    expected = ("Delete ingress rule 0 (allow) of AntreaClusterNetworkPolicy web.",)
    assert asked(PUBLIC, request="GET /secret").changes == expected


@pytest.mark.parametrize("text", ["GET", "GET cart", "/cart", "GET https://a/cart", "GET http:///x"])
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not a method and target"):
        request_of(text, "")
    with pytest.raises(Invalid, match="leave one of"):
        request_of("GET /", "a.example")


def test_a_request_is_shown_as_it_was_asked() -> None:
    assert Request("GET", "a", "/b").description == "GET http://a/b"
    assert Request("GET", "", "/b").description == "GET /b"
    assert Request(server_name="a").description == "TLS server name a"


@given(st.text("ab*.", max_size=5), st.text("ab.", max_size=6))
def test_wildcards_mean_what_the_engine_takes_them_for(pattern: str, text: str) -> None:
    """Two readings of one definition; the engine's is in pattern.py."""
    if pattern.strip("*") and cp.HTTPProtocol(host=pattern).host:
        expression = wildcard(pattern, IN_HOST).replace("++", "+").replace("*+", "*")
        assert _matches(pattern, text) == bool(re.fullmatch(expression, text))
