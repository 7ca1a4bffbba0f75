"""The OVSDB client against a real ovsdb-server and a real ovs-vswitchd with its dummy datapath."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from ovs_process import OvsProcess, ovs_process

from antrea.errors import Refused, Unavailable
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.host.ovs_port import Bridge, PodPort, Port
from antrea.outside.ovsdb.client import Ovsdb
from antrea.outside.ovsdb.port_feed import PortFeed
from antrea.outside.ovsdb.write import (
    drop_bridge,
    drop_ports,
    ensure_bridge,
    ensure_port,
    name_tables,
    next_round,
    ofport,
    realized,
    set_keys,
)
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.port_sink import PortSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from antrea.outside.ovsdb.rows import Row

BRIDGE = Bridge(name="br-int", datapath_type="dummy")
POD = PodPort(
    container_id="c0ffee",
    pod_namespace="shop",
    pod_name="web-0",
    mac="8e:7e:b0:71:3c:01",
    ips=("10.10.0.5", "fd00:10::5"),
)


@pytest.fixture(scope="module")
def switch() -> Iterator[OvsProcess]:
    with ovs_process() as running:
        yield running


@pytest.fixture
async def db(switch: OvsProcess) -> AsyncIterator[Ovsdb]:
    """A client on a database that holds an empty br-int and nothing else."""
    client = await Ovsdb.connect(switch.socket)
    await ensure_bridge(client, BRIDGE)
    await realized(client)
    yield client
    for row in list(client.rows("Bridge").values()):
        await drop_bridge(client, row["name"])
    await client.close()


def pod_port(name: str) -> Port:
    return Port(name=name, type="dummy", external_ids=tuple(POD.external_ids().items()))


async def test_a_bridge_is_made_once_and_brought_in_line(db: Ovsdb, switch: OvsProcess) -> None:
    switch.vsctl("set", "bridge", "br-int", "external_ids:mine=1", "protocols=OpenFlow13")
    wanted = Bridge(name="br-int", datapath_type="dummy", fail_mode="secure", external_ids=(("a", "b"),))
    await ensure_bridge(db, wanted)
    uuid = switch.vsctl("get", "bridge", "br-int", "_uuid")
    await ensure_bridge(db, wanted)
    shown = switch.vsctl(
        "get", "bridge", "br-int", "_uuid", "protocols", "fail_mode", "external_ids"
    ).splitlines()
    assert shown == [uuid.strip(), "[OpenFlow10, OpenFlow15]", "secure", '{a=b, mine="1"}']


async def test_tables_have_their_names_for_ovs_ofctl_and_lose_those_of_another_pipeline(
    db: Ovsdb, switch: OvsProcess
) -> None:
    await name_tables(db, "br-int", {"Root": 0, "Old": 3, "Older": 4})
    await name_tables(db, "br-int", names := {"Root": 0, "Classifier": 3})
    rows = db.row("Bridge", "br-int")
    await name_tables(db, "br-int", names)
    assert db.row("Bridge", "br-int") is rows
    await realized(db)
    switch.ofctl("add-flow", "br-int", "table=3,priority=7,actions=drop")
    assert "priority=7" in switch.ofctl("dump-flows", "br-int", "table=Classifier")
    with pytest.raises(subprocess.CalledProcessError):
        switch.ofctl("dump-flows", "br-int", "table=Old")


async def test_a_port_gets_its_number_and_keeps_it_when_it_is_brought_in_line(db: Ovsdb) -> None:
    gateway = Port(
        name="gw0", type="internal", ofport_request=32769, external_ids=(("antrea-type", "gateway"),)
    )
    uuid = await ensure_port(db, "br-int", gateway)
    assert await ofport(db, "gw0") == 32769
    changed = Port(name="gw0", type="internal", mac="02:00:00:00:00:07", tag=5, external_ids=(("more", "1"),))
    assert await ensure_port(db, "br-int", changed) == uuid

    def in_use() -> Row | None:
        row = db.row("Interface", "gw0")
        return row if row and row["mac_in_use"] == "02:00:00:00:00:07" else None

    interface = await db.until(in_use, "new MAC", within=60)
    port = db.row("Port", "gw0")
    assert port is not None
    assert (port["tag"], port["external_ids"]) == (5, {"antrea-type": "gateway", "more": "1"})
    assert interface["ofport"] == 32769


async def test_options_are_replaced_and_foreign_external_ids_stay(db: Ovsdb, switch: OvsProcess) -> None:
    tunnel = Port(
        name="tun0", type="geneve", options=(("key", "flow"), ("remote_ip", "flow"), ("csum", "true"))
    )
    await ensure_port(db, "br-int", tunnel)
    switch.vsctl("set", "port", "tun0", "external_ids:foreign=1")
    await ensure_port(
        db, "br-int", Port(name="tun0", type="geneve", options=(("remote_ip", "flow"), ("key", "flow")))
    )
    assert switch.vsctl("get", "interface", "tun0", "options") == "{key=flow, remote_ip=flow}\n"
    assert switch.vsctl("get", "port", "tun0", "external_ids") == '{foreign="1"}\n'


async def test_ports_are_dropped_together_and_absent_ones_are_no_error(db: Ovsdb, switch: OvsProcess) -> None:
    for name in ("p1", "p2", "p3"):
        await ensure_port(db, "br-int", Port(name=name, type="dummy"))
    await drop_ports(db, "br-int", ["p1", "p3", "p1", "ghost"])
    await drop_ports(db, "br-int", ["p1", "p3"])
    assert switch.vsctl("list-ports", "br-int").split() == ["p2"]


async def test_a_single_key_is_set_and_removed_without_its_neighbours(db: Ovsdb, switch: OvsProcess) -> None:
    await set_keys(
        db, "Open_vSwitch", ".", column="other_config", keys={"flow-restore-wait": "true", "x": "1"}
    )
    await set_keys(db, "Open_vSwitch", ".", column="other_config", keys={"x": "2"})
    await set_keys(
        db, "Open_vSwitch", ".", column="other_config", keys={"flow-restore-wait": None, "absent": None}
    )
    assert switch.vsctl("get", "open_vswitch", ".", "other_config") == '{x="2"}\n'
    await set_keys(db, "Open_vSwitch", ".", column="other_config", keys={"x": None})


async def test_two_writers_of_one_port_make_one_port(db: Ovsdb, switch: OvsProcess) -> None:
    other = await Ovsdb.connect(switch.socket)
    one, two = (Port(name="p1", type="dummy", external_ids=((key, "1"),)) for key in ("a", "b"))
    uuids = await asyncio.gather(ensure_port(db, "br-int", one), ensure_port(other, "br-int", two))
    await other.close()
    assert uuids[0] == uuids[1]
    assert switch.vsctl("get", "port", "p1", "external_ids") == '{a="1", b="1"}\n'


async def test_a_port_that_moves_to_another_bridge_is_no_fact_of_ours(db: Ovsdb) -> None:
    await ensure_bridge(db, Bridge(name="br-two", datapath_type="dummy"))
    uuid = await ensure_port(db, "br-int", pod_port("p1"))
    await ofport(db, "p1")

    def mutation(bridge: str, verb: str) -> dict[str, Any]:
        where, ports = [["name", "==", bridge]], [["ports", verb, ["uuid", uuid]]]
        return {"op": "mutate", "table": "Bridge", "where": where, "mutations": ports}

    async with fed(db) as facts:
        await db.transact(mutation("br-int", "delete"), mutation("br-two", "insert"))
        await facts.until(lambda: not facts.rows)
        await db.transact(mutation("br-two", "delete"), mutation("br-int", "insert"))
        await facts.until(lambda: "p1" in facts.rows)


async def test_the_database_answers_no_in_its_own_words(db: Ovsdb) -> None:
    bad = {"op": "insert", "table": "Bridge", "row": {"name": "b", "fail_mode": "sometimes"}}
    with pytest.raises(Refused) as no:
        await db.transact({"op": "comment", "comment": "fine"}, bad)
    assert no.value.entries == (bad,)
    assert no.value.why.startswith("constraint violation: sometimes is not one of the allowed values")


async def test_a_port_of_another_bridge_is_refused(db: Ovsdb) -> None:
    await ensure_bridge(db, Bridge(name="br-two", datapath_type="dummy"))
    await ensure_port(db, "br-two", Port(name="p9", type="dummy"))
    with pytest.raises(Refused, match="port p9 is on another bridge than br-int"):
        await ensure_port(db, "br-int", Port(name="p9", type="dummy"))


async def test_a_device_that_cannot_be_opened_is_refused_with_the_words_of_ovs(db: Ovsdb) -> None:
    await ensure_port(db, "br-int", Port(name="odd0", type="nosuchtype"))
    with pytest.raises(Refused, match="odd0"):
        await ofport(db, "odd0")


async def test_the_round_counts_up_from_one_and_never_is_zero(db: Ovsdb) -> None:
    assert [await next_round(db, "br-int") for _ in range(2)] == [1, 2]
    await set_keys(db, "Bridge", "br-int", column="external_ids", keys={"roundNum": "65534"})
    assert [await next_round(db, "br-int") for _ in range(2)] == [65535, 1]


class Written:
    """Records what a feed writes, in the shape of the engine's Facts."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.log: list[tuple[str, str, bool]] = []
        self.kinds: list[type] = []
        self.news = asyncio.Event()

    def put(self, row: Any, *, urgent: bool = False) -> None:
        self.rows[row.key] = row
        self._note("put", row.key, urgent=urgent)

    def drop(self, _kind: type, key: str, *, urgent: bool = False) -> None:
        del self.rows[key]
        self._note("drop", key, urgent=urgent)

    def synced(self, kind: type) -> None:
        self.kinds.append(kind)

    def _note(self, verb: str, key: str, *, urgent: bool) -> None:
        self.log.append((verb, key, urgent))
        self.news.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await self.news.wait()
                self.news.clear()


@contextlib.asynccontextmanager
async def fed(db: Ovsdb) -> AsyncIterator[Written]:
    written: Any = Written()
    feed = asyncio.create_task(PortFeed(db, "br-int").run(written))
    await asyncio.sleep(0)
    yield written
    feed.cancel()
    await asyncio.wait([feed])


async def test_the_feed_lists_calmly_then_follows_urgently(db: Ovsdb) -> None:
    await ensure_port(
        db, "br-int", Port(name="gw0", type="internal", external_ids=(("antrea-type", "gateway"),))
    )
    await ensure_port(db, "br-int", Port(name="foreign", type="dummy"))
    await ofport(db, "gw0")
    await ofport(db, "foreign")
    async with fed(db) as facts:
        assert facts.log == [("put", "gw0", False)]
        assert facts.kinds == [PodInterface, OvsPort]
        uuid = await ensure_port(db, "br-int", pod_port("web-0-1"))
        number = await ofport(db, "web-0-1")
        await facts.until(lambda: "web-0-1" in facts.rows)
        assert facts.rows["web-0-1"] == PodInterface(
            name="web-0-1",
            container_id="c0ffee",
            pod_namespace="shop",
            pod_name="web-0",
            mac="8e:7e:b0:71:3c:01",
            ips=("10.10.0.5", "fd00:10::5"),
            ofport=number,
            port_uuid=uuid,
        )
        await drop_ports(db, "br-int", ["web-0-1"])
        await facts.until(lambda: "web-0-1" not in facts.rows)
        assert facts.log == [("put", "gw0", False), ("put", "web-0-1", True), ("drop", "web-0-1", True)]


async def test_a_port_without_a_number_is_no_fact(db: Ovsdb) -> None:
    async with fed(db) as facts:
        broken = Port(name="broken", type="nosuchtype", external_ids=tuple(POD.external_ids().items()))
        await ensure_port(db, "br-int", broken)
        await realized(db)
        await ensure_port(db, "br-int", pod_port("good"))
        await facts.until(lambda: "good" in facts.rows)
        assert list(facts.rows) == ["good"]


async def test_a_port_that_changes_its_meaning_moves_to_the_other_kind(db: Ovsdb) -> None:
    await ensure_port(db, "br-int", pod_port("p1"))
    await ofport(db, "p1")
    async with fed(db) as facts:
        assert isinstance(facts.rows["p1"], PodInterface)
        await set_keys(db, "Port", "p1", column="external_ids", keys={"antrea-type": "traffic-control"})
        await facts.until(lambda: isinstance(facts.rows.get("p1"), OvsPort))
        assert facts.log[1:] == [("drop", "p1", True), ("put", "p1", True)]


async def test_a_bridge_made_anew_brings_its_ports_back(db: Ovsdb) -> None:
    await ensure_port(db, "br-int", pod_port("p1"))
    await ofport(db, "p1")
    async with fed(db) as facts:
        await drop_bridge(db, "br-int")
        await facts.until(lambda: not facts.rows)
        await ensure_bridge(db, BRIDGE)
        uuid = await ensure_port(db, "br-int", pod_port("p1"))
        await facts.until(lambda: "p1" in facts.rows)
        assert facts.rows["p1"].port_uuid == uuid


async def test_a_database_that_restarts_costs_no_fact_and_reports_what_changed(
    db: Ovsdb, switch: OvsProcess
) -> None:
    await ensure_port(db, "br-int", pod_port("p1"))
    await ensure_port(db, "br-int", pod_port("p2"))
    await ofport(db, "p1")
    await ofport(db, "p2")
    async with fed(db) as facts:
        listed = list(facts.log)
        switch.kill("ovsdb-server")
        while True:
            try:
                await db.transact({"op": "comment", "comment": "anybody there?"})
            except Unavailable:
                break
        assert facts.log == listed
        offline = ["ovsdb-tool", "transact", str(switch.directory / "conf.db")]
        drop = '["Open_vSwitch",{"op":"mutate","table":"Bridge","where":[["name","==","br-int"]],"mutations":[["ports","delete",["uuid","%s"]]]}]'
        switch.run(*offline, drop % facts.rows["p1"].port_uuid)
        switch.start_database()
        await facts.until(lambda: "p1" not in facts.rows)
        assert (db.row("Port", "p1"), db.row("Interface", "p1")) == (None, None)
        await ensure_port(db, "br-int", pod_port("p3"))
        await facts.until(lambda: "p3" in facts.rows)
        assert facts.log == [*listed, ("drop", "p1", True), ("put", "p3", True)]


async def test_a_database_that_restarts_does_not_take_the_gateways_address(
    db: Ovsdb, switch: OvsProcess
) -> None:
    """mac_in_use is ephemeral: empty until ovs-vswitchd is connected again, which takes it seconds."""
    gateway = Port(name="gw0", type="internal", external_ids=(("antrea-type", "gateway"),))
    await ensure_port(db, "br-int", gateway)
    await ofport(db, "gw0")

    def without_mac() -> Row | None:
        row = db.row("Interface", "gw0")
        return row if row and not row["mac_in_use"] else None

    async with fed(db) as facts:
        listed = list(facts.log)
        switch.pause("ovs-vswitchd")
        switch.kill("ovsdb-server")
        switch.start_database()
        await db.until(without_mac, "list without MAC addresses", within=60)
        async with fed(db) as late:
            assert late.rows == {}
            switch.resume("ovs-vswitchd")
            await late.until(lambda: "gw0" in late.rows)
            assert late.rows == facts.rows
        assert facts.log == listed


async def test_a_database_that_hangs_is_unavailable_not_endless(db: Ovsdb, switch: OvsProcess) -> None:
    switch.pause("ovsdb-server")
    try:
        with pytest.raises(Unavailable, match=r"no answer of OVSDB within 0\.05 s"):
            await db.transact({"op": "comment", "comment": "slow"}, within=0.05)
    finally:
        switch.resume("ovsdb-server")
    assert await db.transact({"op": "comment", "comment": "back"}) == [{}]


async def test_a_database_that_hangs_does_not_respond_until_it_goes_on(db: Ovsdb, switch: OvsProcess) -> None:
    await db.probe()
    switch.pause("ovsdb-server")
    try:
        with pytest.raises(Unavailable, match="answer of ovsdb-server to an echo"):
            await db.probe(0.2)
        assert db.connected
    finally:
        switch.resume("ovsdb-server")
    await db.probe()


async def test_a_database_that_is_not_there_is_unavailable(switch: OvsProcess) -> None:
    with pytest.raises(Unavailable, match=r"OVSDB at .*nobody\.sock"):
        await Ovsdb.connect(switch.directory / "nobody.sock", within=0.1)


def flags(switch: OvsProcess, port: str) -> str:
    shown = switch.run("ovs-ofctl", "-O", "OpenFlow10", "show", f"unix:{switch.directory}/br-int.mgmt")
    _, found = shown.split(f"({port})")
    return found.split("config:")[1].split("\n")[0].strip()


async def test_ports_of_features_are_made_flagged_and_swept(db: Ovsdb, switch: OvsProcess) -> None:
    def wanted(name: str, kind: str = "traffic-control") -> Port:
        return Port(name=name, type="dummy", external_ids=(("antrea-type", kind),), no_flood=True)

    sink = PortSink(
        db, "br-int", Ofctl(switch.directory / "br-int.mgmt"), {1: frozenset({"traffic-control"})}
    )
    await sink.apply([wanted("t1"), wanted("t2"), wanted("keep", "uplink")], [])
    assert [flags(switch, name) for name in ("t1", "t2")] == ["NO_FLOOD", "NO_FLOOD"]
    await sink.apply([], [wanted("t2")])
    assert switch.vsctl("list-ports", "br-int").split() == ["keep", "t1"]
    await sink.resync([wanted("t3")])
    await sink.sweep(0)
    assert switch.vsctl("list-ports", "br-int").split() == ["keep", "t1", "t3"]
    await sink.sweep(1)
    assert switch.vsctl("list-ports", "br-int").split() == ["keep", "t3"]


async def test_a_port_that_ovs_does_not_take_does_not_hold_up_the_others(
    db: Ovsdb, switch: OvsProcess
) -> None:
    sink = PortSink(db, "br-int", Ofctl(switch.directory / "br-int.mgmt"), {})
    odd = Port(name="odd1", type="nosuchtype", no_flood=True)
    with pytest.raises(Refused, match="odd1") as no:
        await sink.apply([odd, Port(name="t4", type="dummy")], [])
    assert no.value.entries == (odd,)
    assert "t4" in switch.vsctl("list-ports", "br-int").split()


class OldServer:
    """Stands between client and server, and makes the server one that does not know monitor_cond_since."""

    def __init__(self, switch: OvsProcess) -> None:
        self.socket = switch.directory / "old.sock"
        self._real = str(switch.socket)
        self._pumps: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._real)
        for pump in (self._pump(reader, far_writer), self._pump(far_reader, writer)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data.replace(b"monitor_cond_since", b"monitor_cond_unkown"))
        writer.close()


async def test_an_old_server_without_resume_is_followed_too(db: Ovsdb, switch: OvsProcess) -> None:
    old = OldServer(switch)
    async with await asyncio.start_unix_server(old.accept, str(old.socket)):
        client = await Ovsdb.connect(old.socket)
        assert client.rows("Bridge") == db.rows("Bridge")
        await ensure_port(client, "br-int", Port(name="p1", type="dummy"))
        await db.until(
            lambda: db.row("Port", "p1") == client.row("Port", "p1") or None, "the same p1", within=60
        )
        await drop_ports(db, "br-int", ["p1"])
        await client.until(lambda: client.row("Port", "p1") is None or None, "drop of p1", within=60)
        await client.close()
