"""Signatures of rules with l7Protocols: their expressions, by Python's matcher, over requests as the engine hands them on."""

from __future__ import annotations

import re
import string
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.apis.controlplane import HTTPProtocol, L7Protocol, TLSProtocol
from antrea.errors import Invalid
from antrea.features.network_policy.l7 import pattern
from antrea.features.network_policy.l7.configuration import HEADER, engine_file, tenant_file
from antrea.features.network_policy.l7.rules import MAX_HEAD, MAX_LENGTH, signatures

PUBLIC = HTTPProtocol(method="GET", path="/public*")
SHOP = HTTPProtocol(host="*.shop.example")
BYTES = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=30)
BENIGN = set(string.ascii_letters + string.digits + "\\")


def matches(expression: str, text: str) -> bool:
    """Python calls the end of the text by another letter."""
    expression = expression.replace(r"\z", r"\Z")
    if sys.version_info < (
        3,
        11,
        5,
    ):  # gets possessive quantifiers wrong (python/cpython#106052); greedy ones take the same
        expression = re.sub(r"([\])](?:[*+?]|\{[0-9,]+\}))\+", r"\1", expression)
    return re.match(expression.encode(), text.encode("latin1")) is not None


def start(line: str, *headers: str) -> str:
    return "".join(f"{one}\r\n" for one in (line, *headers, ""))


ANY_HOST = [HTTPProtocol(host=host, path="/echo*", method="GET") for host in ("", "*", "**")]
HOSTS = [
    start("GET /echo?msg=1 HTTP/1.1", "Host: [fd00:10::7]:8080"),
    start("GET /echo?msg=1 HTTP/1.1", "Host: [::ffff:10.0.0.7]"),
    start("GET /echo HTTP/1.0"),
    start("GET /echo HTTP/1.1", "Host:"),
    start("GET /echo HTTP/1.1", "Host: foo.example"),
    start("GET http://[fd00:10::7]:8080/echo HTTP/1.1", "Host: [fd00:10::7]:8080"),
    start("GET http://foo.example/echo HTTP/1.0"),
]
"""Heads of requests that a rule without a host, or with one that is any, allows."""


def http2(**headers: str) -> str:
    return "".join(f"{name.replace('_', ':', 1)}: {value}\r\n" for name, value in headers.items())


@pytest.mark.parametrize(
    ("allowed", "request_head"),
    [
        (PUBLIC, start("GET /public HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /public/x HTTP/1.0")),
        (PUBLIC, start("GET /public?x=/../ HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET http://any/public HTTP/1.1", "Host: any")),
        (SHOP, start("POST /h/1 HTTP/1.1", "X: y", "HOST: www.Shop.Example:80")),
        (SHOP, start("GET http://www.shop.example/h HTTP/1.1", "Host: www.shop.example")),
        (HTTPProtocol(), start("CONNECT a:443 HTTP/1.1", "Host: a")),
        (HTTPProtocol(path="*"), start("OPTIONS * HTTP/1.1", "Host: a")),
        (HTTPProtocol(path="/a.b"), start("GET /a.b HTTP/1.1", "Host: a")),
        (HTTPProtocol(path="*.png"), start("GET /x/y.png HTTP/1.1", "Host: a")),
        *((allowed, request_head) for allowed in ANY_HOST for request_head in HOSTS),
    ],
)
def test_l7_rules_let_the_allowed_request_pass(allowed: HTTPProtocol, request_head: str) -> None:
    assert matches(pattern.http1(allowed), request_head)


@pytest.mark.parametrize(
    ("allowed", "request_head"),
    [
        (PUBLIC, start("GET /secret HTTP/1.1", "Host: a")),
        (PUBLIC, start("POST /public HTTP/1.1", "Host: a")),
        (PUBLIC, start("get /public HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /Public HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /public/../secret HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /public/.. HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /public/%2e%2E/secret HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /public/.%2e/secret HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /public%2f..%2fsecret HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /public\\..\\secret HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET /public/..;/secret HTTP/1.1", "Host: a")),
        (PUBLIC, start("GET http://any/secret HTTP/1.1", "Host: any")),
        (PUBLIC, start("GET /secret /public HTTP/1.1", "Host: a")),
        *((allowed, start("GET /x HTTP/1.1", "Host: [fd00:10::7]")) for allowed in ANY_HOST),
        *((allowed, start("GET http://[fd00::7]@evil/x HTTP/1.1", "Host: a")) for allowed in ANY_HOST),
        *((allowed, start("GET http://[fd00::7]/../echo HTTP/1.1", "Host: a")) for allowed in ANY_HOST),
        (SHOP, start("GET /h HTTP/1.1", "Host: [fd00:10::7]")),
        (SHOP, start("GET http://evil/h HTTP/1.1", "Host: www.shop.example")),
        (SHOP, start("GET /h HTTP/1.1", "Host: www.shop.example", "Host: evil")),
        (SHOP, start("GET /h HTTP/1.1", "Host: www.shop.example, evil")),
        (SHOP, start("GET /h HTTP/1.1")),
        (SHOP, start("GET /h HTTP/1.1", "Host: www.shop.example.evil")),
        (SHOP, start("GET /h HTTP/1.1", "Host: evil/www.shop.example")),
        (SHOP, start("GET /h HTTP/1.1", "Host: evil@www.shop.example")),
        (HTTPProtocol(path="/a.b"), start("GET /aXb HTTP/1.1", "Host: a")),
        (HTTPProtocol(path="/a"), start("GET /ab HTTP/1.1", "Host: a")),
    ],
)
def test_l7_rules_match_no_other_request(allowed: HTTPProtocol, request_head: str) -> None:
    assert not matches(pattern.http1(allowed), request_head)


@pytest.mark.parametrize(
    "headers",
    [
        "\r\n", "Host: a\r\n\r\n", "Host: a\r\nX-Y: \t b c\r\n\r\n", "A: b\r\nContent-Length: 5\r\nC: d\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n\r\n", "Upgrade: websocket\r\n\r\n", "A: b\r\n",
    ],
)  # fmt: skip
def test_l7_rules_take_headers_that_all_servers_read_alike(headers: str) -> None:
    assert matches(pattern.HEADERS, headers)


@pytest.mark.parametrize(
    "headers",
    [
        "Host: a\r\n b\r\n\r\n", "Host: a\n\r\n", "Host : a\r\n\r\n", "Host: a\x00b\r\n\r\n", "no name\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "Content-Length: 5, 5\r\n\r\n", "Content-Length: +5\r\n\r\n",
        "content-length: 5\r\nTRANSFER-ENCODING: chunked\r\n\r\n", "Transfer-Encoding : chunked\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n", "Transfer-Encoding: gzip, chunked\r\n\r\n", "Upgrade: h2c\r\n\r\n",
        "Upgrade: websocket, H2C\r\n\r\n", "A: b\r\n\r\nC: d\r\n\r\n",
    ],
)  # fmt: skip
def test_l7_rules_refuse_headers_that_servers_read_differently(headers: str) -> None:
    assert not matches(pattern.HEADERS, headers)


@pytest.mark.parametrize("line", ["GET /x HTTP/1.1", "GET * HTTP/1.0", "PURGE /x HTTP/1.1\r\n"])
def test_l7_rules_take_a_request_line(line: str) -> None:
    assert matches(pattern.REQUEST_LINE, line)


@pytest.mark.parametrize(
    "line", ["GET /x", "GET  /x HTTP/1.1", "GET /x HTTP/2.0", "GET /x y HTTP/1.1", " GET /x HTTP/1.1"]
)
def test_l7_rules_refuse_other_request_lines(line: str) -> None:
    assert not matches(pattern.REQUEST_LINE, line)


ASKED = {"_method": "GET", "_scheme": "http", "_path": "/public", "_authority": "www.shop.example"}


@pytest.mark.parametrize("allowed", ANY_HOST)
@pytest.mark.parametrize("authority", [{"_authority": "[fd00:10::7]:8080"}, {"_authority": "a"}, {}])
def test_l7_rules_let_any_host_of_http2_pass(allowed: HTTPProtocol, authority: dict[str, str]) -> None:
    head = {"_method": "GET", "_scheme": "http", **authority, "_path": "/echo"}
    assert matches(pattern.http2(allowed), http2(**head, host="a"))
    assert not matches(pattern.http2(allowed), http2(**{**head, "_path": "/x"}))


@pytest.mark.parametrize("allowed", [PUBLIC, SHOP, HTTPProtocol()])
def test_l7_rules_let_the_allowed_request_of_http2_pass(allowed: HTTPProtocol) -> None:
    assert matches(pattern.http2(allowed), http2(**ASKED, accept="x"))


@pytest.mark.parametrize(
    ("allowed", "request_head"),
    [
        (PUBLIC, http2(**{**ASKED, "_path": "/secret"})),
        (PUBLIC, http2(**{**ASKED, "_path": "/public/../secret"})),
        (PUBLIC, http2(**{**ASKED, "_method": "POST"})),
        (PUBLIC, http2(**ASKED) + http2(_path="/secret")),
        (PUBLIC, http2(**ASKED, accept="x") + http2(_path="/secret")),
        (PUBLIC, http2(_method="GET", _scheme="http")),
        (PUBLIC, http2(**{**ASKED, "_scheme": "http\r\n:path: /public", "_path": "/secret"})),
        (SHOP, http2(**{**ASKED, "_authority": "evil"})),
        (SHOP, http2(**ASKED, host="evil")),
        (SHOP, http2(_method="GET", _scheme="http", _path="/x")),
    ],
)
def test_l7_rules_match_no_other_request_of_http2(allowed: HTTPProtocol, request_head: str) -> None:
    assert not matches(pattern.http2(allowed), request_head)


@pytest.mark.parametrize(
    ("allowed", "name", "is_allowed"),
    [
        ("www.a.example", "WWW.a.example", True), ("*.a.example", "x.y.a.example", True), ("www.*", "www.b", True),
        ("*.a.example", "a.example.evil", False), ("www.a.example", "wwwxa.example", False), ("a", "ab", False),
    ],
)  # fmt: skip
def test_l7_rules_compare_server_names(allowed: str, name: str, is_allowed: bool) -> None:
    assert matches(rf"^(?:{pattern.server_name(allowed)})\z", name) is is_allowed


@given(BYTES, BYTES)
def test_l7_rules_literal_matches_its_text_alone(text: str, other: str) -> None:
    expression = pattern.literal(text).encode()
    assert re.fullmatch(expression, text.encode())
    assert (re.fullmatch(expression, other.encode()) is not None) == (text == other)
    assert set(pattern.literal(text)) <= BENIGN


@given(st.builds(HTTPProtocol, host=BYTES, method=BYTES, path=BYTES), BYTES)
def test_l7_rules_text_of_users_never_leaves_its_expression(http: HTTPProtocol, sni: str) -> None:
    rows = (L7Protocol(http=http), L7Protocol(tls=TLSProtocol(sni=sni)))
    plain = (
        L7Protocol(
            http=HTTPProtocol(
                host="a" * bool(http.host), method="a" * bool(http.method), path=http.path and "/a"
            )
        ),
        L7Protocol(tls=TLSProtocol(sni=sni if sni in ("", "*") else "a")),
    )
    found, expected = (re.sub(r'"/.*?/"', "", signatures(one, logs=True)) for one in (rows, plain))
    assert found == expected
    assert all(line.isascii() and line.isprintable() for line in signatures(rows, logs=True).splitlines())


def test_l7_rules_judge_each_request_and_close_what_is_neither() -> None:
    lines = signatures((L7Protocol(http=PUBLIC),), logs=False).splitlines()
    judged = [line for line in lines if "Reject request" in line]
    assert [line.split()[1] for line in judged] == ["http1", "http2"]
    assert all('pcre:!"/' in line and "flowbits" not in line for line in judged)
    assert not any(line.startswith(("pass", "config")) for line in lines)
    assert {f"sid:{number};)" for number in range(1, len(lines) + 1)} == {line.split()[-1] for line in lines}
    assert sum(f"bsize:>{MAX_HEAD}" in line for line in lines) == 2
    assert {line.split()[1] for line in lines if line.startswith("drop")} == {"udp", "icmp"}


def test_l7_rules_of_tls_alone_accept_no_http() -> None:
    text = signatures((L7Protocol(tls=TLSProtocol(sni="a.example")),), logs=False)
    assert [line.split()[0] for line in text.splitlines() if "tls.sni" in line] == ["reject", "alert"]
    assert 'tls.sni; pcre:!"/' in text
    assert "http" not in text


def test_l7_rules_without_a_server_name_accept_each_handshake() -> None:
    text = signatures((L7Protocol(tls=TLSProtocol()),), logs=False)
    assert "alert tls" in text
    assert "tls.sni" not in text


def test_l7_rules_that_do_not_fit_are_refused() -> None:
    rows = tuple(L7Protocol(http=HTTPProtocol(path=f"/{'_' * 90}{number}")) for number in range(40))
    with pytest.raises(Invalid, match=f"l7Protocols.*more than {MAX_LENGTH} characters"):
        signatures(rows, logs=False)


def test_l7_engine_file_has_every_tenant() -> None:
    text = engine_file("/run/e", (7, 5), events="/run/events.sock")
    assert text.startswith(HEADER)
    found = msgspec.json.decode(text.removeprefix(HEADER))
    assert found["multi-detect"]["tenants"] == [{"id": n, "yaml": f"/run/e/tenant-{n}.yaml"} for n in (5, 7)]
    assert found["multi-detect"]["mappings"] == [{"vlan-id": n, "tenant-id": n} for n in (5, 7)]
    assert found["stream"]["reassembly"]["depth"] == 0
    assert "/run/e/tenant-5.rules" in tenant_file("/run/e", 5)


@pytest.mark.parametrize("number", [0, 4095, -1])
def test_l7_engine_file_refuses_what_is_no_vlan(number: int) -> None:
    with pytest.raises(Invalid, match="not a VLAN"):
        engine_file("/run/e", (number,), events="/run/events.sock")
