"""Requests in records: which packets are copied, what is kept of hostile requests, and which record has them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from policy_world import CONFIG, NODE, interface

from antrea.apis import core
from antrea.apis.annotation import L7_EXPORT
from antrea.apis.flow import FlowRecord
from antrea.engine import Engine, Facts
from antrea.errors import Invalid
from antrea.facts.ovs import OvsPort
from antrea.features.flow_export import l7_requests as requests
from antrea.features.flow_export.connection import ConnectionStore
from antrea.features.flow_export.l7_event import Ends, HttpRequest, Seen, parsed, text_of
from antrea.features.flow_export.l7_requests import NONE, Requests, RequestStore, json_text, spliced
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.l7_flow_export.agent import (
    FEATURES,
    PORT_TYPE,
    TAP,
    RequestedNamespace,
    RequestedPod,
    RequestEngine,
    requested_namespace,
    requested_pod,
)
from antrea.features.l7_flow_export.agent_part import HEADER, engine_file
from antrea.features.pod_connectivity.agent import FEATURE as CONNECTIVITY
from antrea.flow_aggregator.aggregation import Aggregation
from antrea.openflow.flow import Flow
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.tracked_connection import TrackedConnection, tracked_connections

PIPELINE = Pipeline.realize(
    table
    for one in (CONNECTIVITY, *FEATURES)
    for table in one.tables_of(CONFIG, Families(ipv4=True, ipv6=True))
)
ENDS = Ends(6, "10.0.0.1", 40000, "10.96.0.1", 80)
SEED = (
    '{"0":{"hostname":"www.vg.no","url":"/","http_user_agent":"curl/7.68.0","http_content_type":"",'
    '"http_method":"GET","protocol":"HTTP/1.1","status":301,"length":0}}'
)
LINE = (
    "tcp,orig=(src=10.0.0.1,dst=10.96.0.1,sport=40000,dport=80),"
    "reply=(src=10.0.0.2,dst=10.0.0.1,sport=8080,dport=40000),zone=65520,mark=19,protoinfo=(state={})\n"
)


def event(kind: str = "http", proto: str = "TCP", **fields: Any) -> bytes:
    ends = dict(zip(("src_ip", "src_port", "dest_ip", "dest_port"), ENDS[1:], strict=True))
    return json.dumps({"event_type": kind, "proto": proto, "tx_id": 0, **ends, kind: fields}).encode()


def world(pod: str | None, namespace: str | None = None) -> Facts:
    facts = Facts()
    tap = OvsPort(TAP, PORT_TYPE, 40, "0a:00:00:00:00:01")
    for row in (NODE, CONFIG, RealizedPipeline(PIPELINE), tap, interface("web", 5)):
        facts.put(row)
    if pod is not None:
        facts.put(RequestedPod("a", "web", "u", pod))
    if namespace is not None:
        facts.put(RequestedNamespace("a", namespace))
    return facts


def wanted(facts: Facts) -> tuple[list[str], bool, bool]:
    """Matches in TrafficControl, whether copies are sent, and whether the engine runs."""
    plan = Engine(facts, [unit for one in FEATURES for unit in one.units]).plan()
    lines = [one.named(PIPELINE) for one in plan.put if isinstance(one, Flow)]
    marks = sorted(line.split(" actions=")[0] for line in lines if line.startswith("table=TrafficControl"))
    sends = [line for line in lines if line.startswith("table=Output")]
    return marks, len(sends) == 8, any(isinstance(one, RequestEngine) for one in plan.put)


def marks(*matches: str) -> list[str]:
    return sorted(f"table=TrafficControl,priority=190,{one}" for one in matches)


def test_packets_of_both_directions_of_the_connections_that_are_asked_for_are_copied() -> None:
    first, answer, own = "ct_state=-rpl-inv+trk,", "ct_state=+rpl-inv+trk,", "ct_mark=0x0/0x40,"
    to, by = ",reg1=0x5", ",in_port=5"
    families = ("tcp", "tcp6", "ct_nw_proto=17,ct_tp_dst=53,udp", "ct_nw_proto=17,ct_tp_dst=53,udp6")
    ingress = marks(
        *(f"{first}{own}{one}{to}" for one in families), *(f"{answer}{own}{one}{by}" for one in families)
    )
    egress = marks(
        *(f"{first}{own}{one}{by}" for one in families), *(f"{answer}{own}{one}{to}" for one in families)
    )
    both = marks(*(f"ct_state=-inv+trk,{own}{one}{way}" for one in families for way in (to, by)))
    assert wanted(world("ingress")) == (ingress, True, True)
    assert wanted(world("Egress")) == (egress, True, True)
    assert wanted(world("BOTH", "ingress")) == (both, True, True)
    assert wanted(world(None, "both")) == (both, True, True)


@pytest.mark.parametrize(("pod", "namespace"), [(None, None), ("no", None), ("", "both"), (None, "x")])
def test_nothing_is_there_without_a_pod_that_asks(pod: str | None, namespace: str | None) -> None:
    assert wanted(world(pod, namespace)) == ([], False, False)


def test_annotations_are_read_of_pods_with_a_port_and_of_namespaces() -> None:
    meta = core.ObjectMeta(name="web", namespace="shop", uid="u", annotations={L7_EXPORT: "x" * 1000})
    assert requested_pod(core.Pod(metadata=meta)) == RequestedPod("shop", "web", "u", "x" * 64)
    assert requested_pod(core.Pod(metadata=meta, spec=core.PodSpec(host_network=True))) is None
    assert requested_pod(core.Pod()) is None
    assert requested_namespace(core.Namespace(metadata=meta)) == RequestedNamespace("web", "x" * 64)
    assert requested_namespace(core.Namespace()) == RequestedNamespace("", "")


def seen(**fields: Any) -> Seen:
    found = parsed(event(**fields))
    assert found is not None
    return found


def test_a_request_has_the_form_of_upstream() -> None:
    found = seen(hostname="www.vg.no", url="/", http_user_agent="curl/7.68.0", http_method="GET",
                 protocol="HTTP/1.1", status=301, length=0, extra={"x": [1]})  # fmt: skip
    assert found[:3] == (ENDS, "http", 0)
    assert json_text({0: found.text}) == (SEED, [0])


def headers(**values: str) -> list[dict[str, str]]:
    return [{"name": name.replace("_", "-"), "value": value} for name, value in values.items()]


def test_a_request_of_http2_has_the_same_fields_and_the_number_of_its_stream() -> None:
    asked = [*headers(te="trailers"), {"name": ":authority", "value": "cart:50051"}]
    got = headers(content_type="application/grpc", grpc_status="5")
    common: dict[str, Any] = {"version": "2", "url": "/shop.Cart/Add", "http_method": "POST", "status": 200}
    found = seen(**common, request_headers=asked, response_headers=got, http2={"stream_id": 3})
    assert found[1:3] == ("http", 1)
    assert json.loads(found.text) == {
        "hostname": "cart:50051", "url": "/shop.Cart/Add", "http_user_agent": "", "http_content_type": "application/grpc",
        "http_method": "POST", "protocol": "HTTP/2", "status": 200, "length": 0, "grpc_status": 5,
    }  # fmt: skip
    found = seen(**common, response_headers=headers(grpc_status="x"), http2={"stream_id": 1})
    assert "grpc_status" not in json.loads(found.text)
    for stream in (0, 2):
        assert parsed(event(**common, http2={"stream_id": stream})) is None
    assert parsed(event(version="2", http2={"stream_id": 1})) is None


def test_a_tls_session_has_the_name_that_is_asked_for() -> None:
    found = seen(kind="tls", sni="secret.example", version="TLS 1.3", subject="CN=x")
    assert found == Seen(ENDS, "tls", 0, '{"sni":"secret.example","version":"TLS 1.3"}')


def test_an_answer_of_dns_takes_the_place_of_its_question() -> None:
    asked = seen(kind="dns", proto="UDP", type="query", id=7, rrname="www.example.org", rrtype="A", tx_id=0)
    assert asked[:3] == (ENDS._replace(protocol=17), "dns", 7)
    assert asked.text == '{"rrname":"www.example.org","rrtype":"A","rcode":"","answers":[]}'
    rows = [{"rrname": "x", "rdata": f"10.9.0.{number}"} for number in range(20)]
    answers = [{"soa": {"mname": "x"}}, *rows]
    got = seen(
        kind="dns",
        proto="UDP",
        type="answer",
        id=7,
        rrname="www.example.org",
        rrtype="A",
        rcode="NOERROR",
        answers=answers,
    )
    assert json.loads(got.text)["answers"] == [f"10.9.0.{number}" for number in range(7)]
    store = RequestStore()
    for one in (asked, got):
        store.add(one, 0)
    assert (store.received, store.lost, len(store)) == (1, 0, 1)
    assert store.texts() == {asked.ends: Requests("dns", f'{{"7":{got.text}}}')}


TEXTS = ['"}};drop', "\n\r\t\0\x1b[2J", "<script>alert(1)</script>&", "\u2028\x9b\u202e", "é" * 5000, "<" * 5000,
         "\x01" * 5000, "\U0001f600" * 5000, '"' * 5000, "\\"]  # fmt: skip


def answered(text: str) -> list[Seen]:
    ways = headers(content_type=text, x=text)
    rows = [{"rdata": text}] * 20
    return [
        seen(hostname=text, url=text, http_user_agent=text, http_method=text, http_content_type=text, protocol=text,
             status=1 << 40, length=-1),
        seen(url=text, http_method=text, http_user_agent=text, response_headers=ways, http2={"stream_id": 1},
             request_headers=[{"name": ":authority", "value": text}]),
        seen(kind="tls", sni=text, version=text),
        seen(kind="dns", id=-1, rrname=text, rrtype=text, rcode=text, answers=rows),
    ]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_strangers_stays_text_is_bounded_and_has_room_in_a_record(text: str) -> None:
    for found in answered(text):
        written, numbers = json_text({0: found.text})
        assert numbers == [0]
        assert not any(ord(one) < 32 or one in "<>&\u2028\x9b" for one in written)
        assert len(written.encode()) <= requests.MAX_BYTES
    back = json.loads(answered(text)[0].text)
    assert (back["status"], back["length"], len(back["url"]) <= 1024) == ((1 << 31) - 1, 0, True)
    assert len(back["url"]) >= min(len(text), 1024 // 6)
    if len(text) < 32 and text.isascii():
        assert back["hostname"] == text


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"\xff\xfe", event(status="x"), event(url=["a"]), event().replace(b"10.0.0.1", b"nobody"),
     event().replace(b"40000", b"70000"), event(kind="tls", sni=1), event(kind="dns", answers={}),
        event(url="\ud800"), b"[" * 100_000, b'{"x":' * 100_000],
)  # fmt: skip
def test_what_is_no_event_is_malformed(line: bytes) -> None:
    with pytest.raises(Invalid, match=r"."):
        parsed(line)


def test_events_about_something_else_are_left_out() -> None:
    assert parsed(b'{"event_type": "flow"}') is None
    assert parsed(b'{"event_type": "http"}') is None
    assert parsed(event(proto="SCTP")) is None


def request(url: str = "/") -> str:
    return text_of(HttpRequest("h", url, "", "", "GET", "HTTP/1.1", 200, 1))


def of_http(number: int, text: str = "", ends: Ends = ENDS) -> Seen:
    return Seen(ends, "http", number, text or request())


def test_what_a_record_has_no_room_for_waits_for_the_next_one() -> None:
    store = RequestStore()
    for number in range(12):
        store.add(of_http(number, request("/" + "x" * 1000)), 0)
    rounds = []
    while texts := store.texts():
        assert len(texts[ENDS].text) <= requests.MAX_BYTES
        rounds.append(list(json.loads(texts[ENDS].text)))
        store.taken([ENDS], 1)
    assert sorted((one for numbers in rounds for one in numbers), key=int) == [
        str(number) for number in range(12)
    ]
    assert (len(rounds), store.lost, len(store)) == (4, 0, 0)


def test_a_record_has_requests_of_one_protocol_and_the_next_one_those_of_the_other() -> None:
    store = RequestStore()
    store.add(of_http(0), 0)
    store.add(Seen(ENDS, "tls", 0, "{}"), 0)
    assert store.texts()[ENDS].protocol == "http"
    store.taken([ENDS], 1)
    assert store.texts() == {ENDS: Requests("tls", '{"0":{}}')}


def test_requests_that_wait_are_bounded_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RequestStore()
    for number in range(requests.MAX_REQUESTS + 5):
        store.add(of_http(number), 0)
    for port in range(requests.MAX_CONNECTIONS + 5):
        store.add(of_http(0, ends=ENDS._replace(source_port=port)), 0)
    assert store.lost == 5 + 6
    store.taken([], requests.TIMEOUT + 1)
    assert len(store) == 0
    assert store.lost == store.received
    monkeypatch.setattr(requests, "MAX_BYTES", 1200)
    for number in range(10):
        store.add(of_http(number), 0)
    assert len(store) == 3


def test_texts_are_joined_as_long_as_a_record_has_room_and_the_protocol_is_the_same() -> None:
    one, other = (Requests("http", json_text({number: request()})[0]) for number in (0, 1))
    both = spliced(one, other)
    assert both is not None
    assert json.loads(both.text) == json.loads(one.text) | json.loads(other.text)
    assert (spliced(NONE, one), spliced(one, NONE)) == (one, one)
    assert spliced(one, Requests("http", "{" + "x" * 4096 + "}")) is None
    assert spliced(one, Requests("tls", other.text)) is None


def record_of(found: TrackedConnection) -> FlowRecord:
    return FlowRecord(source_ip=found.key[1], destination_ip=found.key[3])


def update(store: ConnectionStore, state: str, now: float, waiting: dict[Ends, Requests]) -> None:
    dump = list(tracked_connections(LINE.format(state)))
    for _ in store.update(dump, (), now, now, record_of):
        pass
    store.join(waiting, now)


def test_a_connection_takes_requests_also_after_its_last_record() -> None:
    store, text = ConnectionStore(5, 5, 300, requests=True), json_text({0: request()})[0]
    waiting = Requests("http", text)
    update(store, "ESTABLISHED", 0, {})
    others = (ENDS._replace(source_port=1), ENDS._replace(protocol=17))
    update(store, "ESTABLISHED", 1, {ENDS: waiting, **dict.fromkeys(others, waiting)})
    assert store.joined == {ENDS}
    [record] = store.due(5, 10)
    assert (record.app_protocol_name, record.http_vals) == ("http", text)
    update(store, "TIME_WAIT", 6, {})
    [record] = store.due(20, 10)
    assert (record.app_protocol_name, record.http_vals, record.flow_end_reason) == ("http", "", 3)
    update(store, "TIME_WAIT", 21, {ENDS: waiting})
    [record] = store.due(21, 10)
    assert record.http_vals == text
    update(store, "TIME_WAIT", 22, {ENDS: Requests("tls", text)})
    [record] = store.due(22, 10)
    assert (record.app_protocol_name, record.http_vals) == ("tls", text)
    assert store.due(100, 10) == []
    for _ in store.update((), tracked_connections(LINE.format("TIME_WAIT")), 101, 101, record_of):
        pass
    store.join({ENDS: waiting}, 101)
    assert (len(store), store.joined) == (0, set())


def test_the_aggregator_joins_requests_and_sends_each_once() -> None:
    one, other = json_text({0: request()})[0], json_text({1: request()})[0]
    flow = FlowRecord(
        source_ip="10.0.0.1", destination_ip="10.0.0.2", flow_type=1, flow_end_seconds=1,
        source_pod_name="a", destination_pod_name="b", app_protocol_name="http", http_vals=one,
    )  # fmt: skip
    joined = Aggregation(10, 100)
    joined.add(flow, 0)
    joined.add(msgspec.structs.replace(flow, http_vals=other, flow_end_seconds=2), 1)
    joined.add(msgspec.structs.replace(flow, http_vals="no JSON", flow_end_seconds=3), 1)
    [sent] = joined.due(10, 10)
    assert json.loads(sent.http_vals) == json.loads(one) | json.loads(other)
    assert next(joined.records()).http_vals == sent.http_vals
    joined.add(msgspec.structs.replace(flow, http_vals="", flow_end_seconds=9), 11)
    [sent] = joined.due(25, 10)
    assert (sent.app_protocol_name, sent.http_vals) == ("http", "")
    for name, text in (("http", one), ("tls", other)):
        joined.add(
            msgspec.structs.replace(flow, app_protocol_name=name, http_vals=text, flow_end_seconds=26), 26
        )
    [sent] = joined.due(50, 10)
    assert (sent.app_protocol_name, sent.http_vals) == ("tls", other)


def test_the_engine_reads_one_port_and_writes_requests_alone() -> None:
    text = engine_file(TAP, "/run/x", "/run/x/events.sock")
    found = json.loads(text.removeprefix(HEADER))
    assert [one["interface"] for one in found["af-packet"]] == [TAP]
    [output] = found["outputs"]
    assert [one if isinstance(one, str) else next(iter(one)) for one in output["eve-log"]["types"]] == [
        "http",
        "http2",
        "tls",
        "dns",
    ]
    assert output["eve-log"]["filename"] == "/run/x/events.sock"
