"""Writes of the agent to OVSDB: bridges, ports, single keys; each is idempotent and one transaction.

A transaction is built from the replica and guarded by `wait` operations on the rows it builds on, so that it fails as a
whole if another client changed a row meanwhile; it is then built again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from antrea.host.ovs_port import Bridge, Port
    from antrea.outside.ovsdb.client import Ovsdb
    from antrea.outside.ovsdb.rows import Row

Operation = dict[str, Any]

_RACES = ("timed out", "constraint violation", "referential integrity violation")
"""Errors of a transaction whose rows another client changed; a wrong transaction has the same ones."""
_TRIES = 3


async def ensure_bridge(db: Ovsdb, bridge: Bridge) -> None:
    """Create the bridge, or bring it in line. Raises Refused, Unavailable."""

    def build() -> list[Operation]:
        columns: dict[str, Any] = {
            "datapath_type": bridge.datapath_type,
            "protocols": frozenset(bridge.protocols),
            **({} if bridge.fail_mode is None else {"fail_mode": bridge.fail_mode}),
        }
        maps = {"other_config": dict(bridge.other_config), "external_ids": dict(bridge.external_ids)}
        if row := db.row("Bridge", bridge.name):
            return _aligned("Bridge", row, columns, maps)
        return [
            _insert("Bridge", "bridge", {"name": bridge.name, **columns, **maps}),
            _mutate("Open_vSwitch", db.root, "bridges", "insert", _named("bridge")),
        ]

    await _settle(db, build)


async def name_tables(db: Ovsdb, bridge: str, numbers: Mapping[str, int]) -> None:
    """Give tables their names, by which ovs-ofctl takes and shows them. Raises Refused, Unavailable."""
    names = {number: name for name, number in numbers.items()}

    def build() -> list[Operation]:
        home = _existing_row(db, "Bridge", bridge)
        tables = db.rows("Flow_Table")
        shown = {
            number: tables[uuid]["name"] for number, uuid in home["flow_tables"].items() if uuid in tables
        }
        if shown == names:
            return []
        rows = [_insert("Flow_Table", f"table{number}", {"name": name}) for number, name in names.items()]
        named = ["map", [[number, _named(f"table{number}")] for number in names]]
        update = {"op": "update", "table": "Bridge", "where": _by_uuid(home), "row": {"flow_tables": named}}
        return [_guard("Bridge", home), *rows, update]

    await _settle(db, build)


async def drop_bridge(db: Ovsdb, name: str) -> None:
    """Take a bridge away with its ports. Raises Refused, Unavailable."""

    def build() -> list[Operation]:
        row = db.row("Bridge", name)
        return [_mutate("Open_vSwitch", db.root, "bridges", "delete", _uuid(row.uuid))] if row else []

    await _settle(db, build)


async def ensure_port(db: Ovsdb, bridge: str, port: Port) -> str:
    """Create the port on `bridge`, or bring it in line; returns its uuid. Raises Refused, Unavailable."""

    def build() -> list[Operation]:
        home = _existing_row(db, "Bridge", bridge)
        row = db.row("Port", port.name)
        return _new_port(home, port) if row is None else _aligned_port(db, home, row, port)

    await _settle(db, build)
    return _existing_row(db, "Port", port.name).uuid


async def drop_ports(db: Ovsdb, bridge: str, names: Iterable[str]) -> None:
    """Take ports off `bridge`; those that are not there are no error. Raises Refused, Unavailable."""
    wanted = tuple(names)

    def build() -> list[Operation]:
        home = db.row("Bridge", bridge)
        rows = [row for name in wanted if (row := db.row("Port", name))]
        uuids = sorted({row.uuid for row in rows if home and row.uuid in home["ports"]})
        if home is None or not uuids:
            return []
        return [_mutate("Bridge", home, "ports", "delete", ["set", [_uuid(uuid) for uuid in uuids]])]

    await _settle(db, build)


async def set_keys(db: Ovsdb, table: str, name: str, *, column: str, keys: Mapping[str, str | None]) -> None:
    """Set or, with None, remove keys of a map column (external_ids, other_config, bfd), leaving the other keys.

    `name` is that of the row, or "." for the only row of Open_vSwitch. Raises Refused, Unavailable.
    """

    def build() -> list[Operation]:
        row = db.root if table == "Open_vSwitch" else _existing_row(db, table, name)
        changes = _map_changes(table, row, column, keys)
        return [_guard(table, row), *changes] if changes else []

    await _settle(db, build)


async def realized(db: Ovsdb, *, within: float = 10.0) -> None:
    """Returns once ovs-vswitchd has acted on everything written so far (next_cfg, cur_cfg: ovs-vswitchd.conf.db(5)).

    Raises Unavailable if it has not `within` that many seconds, for instance because it is not running.
    """
    operation = {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}
    await db.transact(operation)
    requested = db.root["next_cfg"]
    await db.until(
        lambda: db.root["cur_cfg"] >= requested or None,
        "ovs-vswitchd has not applied the configuration in OVSDB",
        within=within,
    )


async def ofport(db: Ovsdb, name: str, *, within: float = 10.0) -> int:
    """The OpenFlow number of a port, once it has one.

    Raises Refused with the words of OVS if it could not open the device, Unavailable after a timeout.
    """
    await db.until(
        lambda: _row_with_ofport(db, name), f"port {name} has no OpenFlow number yet", within=within
    )
    row = _existing_row(db, "Interface", name)
    if row["ofport"] < 0:
        raise Refused([name], row["error"] or f"could not open network device {name}")
    return int(row["ofport"])


async def next_round(db: Ovsdb, bridge: str) -> int:
    """Number of this start of the agent, 1 to 65535, for the cookies of its flows; saved before any flow carries it.

    Upstream saves it only after the sweep and wipes what a start that died half-way left; saved at once, every start
    has a number of its own, and the sweep takes whatever is of any other.
    parity: pkg/agent/agent.go roundNumKey
    """
    saved = _existing_row(db, "Bridge", bridge)["external_ids"].get("roundNum", "")
    number = int(saved) % 0xFFFF + 1 if saved.isdecimal() else 1
    await set_keys(db, "Bridge", bridge, column="external_ids", keys={"roundNum": str(number)})
    return number


def _new_port(home: Row, port: Port) -> list[Operation]:
    interface = {
        "name": port.name,
        "type": port.type,
        "options": dict(port.options),
        **({"ofport_request": port.ofport_request} if port.ofport_request else {}),
        **_if_given(port),
    }
    columns = {
        "name": port.name,
        "interfaces": _named("interface"),
        "external_ids": dict(port.external_ids),
        "trunks": frozenset(port.trunks),
        **({} if port.tag is None else {"tag": port.tag}),
    }
    return [
        _guard("Bridge", home),
        _insert("Interface", "interface", interface),
        _insert("Port", "port", columns),
        _mutate("Bridge", home, "ports", "insert", _named("port")),
    ]


def _aligned_port(db: Ovsdb, home: Row, row: Row, port: Port) -> list[Operation]:
    if row.uuid not in home["ports"]:
        raise Refused([port], f"port {port.name} is on another bridge than {home['name']}")
    columns = {"tag": port.tag, "trunks": frozenset(port.trunks)}
    wanted = {"type": port.type, "options": dict(port.options), **_if_given(port)}
    return [
        *_aligned("Port", row, columns, {"external_ids": dict(port.external_ids)}),
        *_aligned("Interface", _existing_row(db, "Interface", port.name), wanted, {}),
    ]


def _if_given(port: Port) -> dict[str, Any]:
    given = {"mac": port.mac, "mtu_request": port.mtu, "bfd": dict(port.bfd) or None}
    return {column: value for column, value in given.items() if value is not None}


def _row_with_ofport(db: Ovsdb, name: str) -> Row | None:
    row = db.row("Interface", name)
    return row if row and row["ofport"] is not None else None


def _existing_row(db: Ovsdb, table: str, name: str) -> Row:
    if row := db.row(table, name):
        return row
    raise Unavailable(f"{table} {name} does not exist in OVSDB")


async def _settle(db: Ovsdb, build: Callable[[], list[Operation]]) -> None:
    """Run what `build` makes of the replica until it finds nothing left to do."""
    why = ""
    for _ in range(_TRIES):
        operations = build()
        if not operations:
            return
        try:
            await db.transact(*operations)
        except Refused as error:
            if not error.why.startswith(_RACES):
                raise
            why = error.why
    if left := build():
        raise Refused(left, why or "somebody else keeps changing these rows of OVSDB")


def _aligned(
    table: str, row: Row, columns: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]
) -> list[Operation]:
    """Return the operations that give `columns` these values and `maps` these keys; guarded, or none."""
    operations: list[Operation] = []
    if other := {name: wire(value) for name, value in columns.items() if row[name] != value}:
        operations.append({"op": "update", "table": table, "where": _by_uuid(row), "row": other})
    for column, keys in maps.items():
        operations += _map_changes(table, row, column, keys)
    return [_guard(table, row), *operations] if operations else []


def _map_changes(table: str, row: Row, column: str, keys: Mapping[str, str | None]) -> list[Operation]:
    stale = sorted(key for key, value in keys.items() if key in row[column] and row[column][key] != value)
    fresh = {key: value for key, value in keys.items() if value is not None and row[column].get(key) != value}
    mutations: list[Any] = [[column, "delete", ["set", stale]]] if stale else []
    if fresh:
        mutations.append([column, "insert", wire(fresh)])
    return (
        [{"op": "mutate", "table": table, "where": _by_uuid(row), "mutations": mutations}]
        if mutations
        else []
    )


def wire(value: Any) -> Any:
    """<value> of RFC 7047, 5.1, from what `Row` holds; a list is <value> already."""
    if value is None:
        return ["set", []]
    if isinstance(value, frozenset):
        return ["set", sorted(value)]
    if isinstance(value, dict):
        return ["map", [[key, value[key]] for key in sorted(value)]]
    return value


def _insert(table: str, name: str, columns: Mapping[str, Any]) -> Operation:
    row = {column: wire(value) for column, value in columns.items()}
    return {"op": "insert", "table": table, "uuid-name": name, "row": row}


def _mutate(table: str, row: Row, column: str, mutator: str, value: Any) -> Operation:
    return {"op": "mutate", "table": table, "where": _by_uuid(row), "mutations": [[column, mutator, value]]}


def _guard(table: str, row: Row) -> Operation:
    """Fails the transaction if the row is gone."""
    columns = ["name"] if table != "Open_vSwitch" else []
    return {
        "op": "wait",
        "table": table,
        "where": _by_uuid(row),
        "timeout": 0,
        "columns": columns,
        "until": "==",
        "rows": [{column: row[column] for column in columns}],
    }


def _by_uuid(row: Row) -> list[Any]:
    return [["_uuid", "==", _uuid(row.uuid)]]


def _uuid(text: str) -> list[str]:
    return ["uuid", text]


def _named(name: str) -> list[str]:
    return ["named-uuid", name]
