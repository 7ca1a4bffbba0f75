"""The OVSDB client: a replica of the rows we watch that follows the server, and transactions on it.

The replica outlives the connection: while ovsdb-server is away it keeps its last rows (ports do not vanish because
their database does), and after a reconnect only what really changed is reported. Notation and diffs are in
`ovsdb_rows`, the connection in `ovsdb_session`, what we write in `ovsdb_write`, the feed of ports in `ovsdb_ports`.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from antrea.errors import Refused, Unavailable
from antrea.outside.ovsdb.rows import Replica, Row, Where, watched_schema
from antrea.outside.ovsdb.session import RpcError, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

DATABASE = "Open_vSwitch"

WATCHED: Mapping[str, Sequence[str]] = {
    "Open_vSwitch": ("bridges", "next_cfg", "cur_cfg", "other_config", "external_ids", "ovs_version"),
    "Bridge": (
        *(
            "name",
            "ports",
            "datapath_type",
            "datapath_id",
            "fail_mode",
            "protocols",
            "other_config",
            "external_ids",
        ),
        "flow_tables",
        "mcast_snooping_enable",
    ),
    "Flow_Table": ("name",),
    "Port": ("name", "interfaces", "external_ids", "tag", "trunks"),
    "Interface": (
        *(
            "name",
            "type",
            "options",
            "ofport",
            "mac",
            "mac_in_use",
            "mtu_request",
            "error",
            "bfd",
            "bfd_status",
        ),
    ),
}
"""The columns that the agent reads; statistics are left out because they change every five seconds."""

RESPONSE_TIMEOUT = 5.0
"""Seconds for the answer to an echo, RFC 7047, 4.1.11."""
_MONITOR = "antrea"
_NO_TRANSACTION = "00000000-0000-0000-0000-000000000000"
_BACKOFF = (0.05, 1.0)
"""Seconds before the first and, doubling, before the slowest reconnect."""

T = TypeVar("T")


class Changes:
    """Iterates over what changed since the last step, coalesced: a set of (table, uuid), to be read from the replica."""

    def __init__(self) -> None:
        self._touched: set[Where] = set()
        self._news = asyncio.Event()
        self._end: BaseException | None = None

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> frozenset[Where]:
        await self._news.wait()
        if self._end is not None:
            raise self._end
        self._news.clear()
        touched, self._touched = frozenset(self._touched), set()
        return touched

    def add(self, touched: set[Where]) -> None:
        """Report rows; the reader may be several reports behind."""
        self._touched |= touched
        self._news.set()

    def end(self, cause: BaseException) -> None:
        """No more will come: the reader gets `cause`."""
        self._end = cause
        self._news.set()


class Ovsdb:
    """A connection to ovsdb-server that comes back by itself."""

    def __init__(self, path: str | Path, columns: Mapping[str, Sequence[str]]) -> None:
        self._path = str(path)
        self._columns = columns
        self._replica = Replica()
        self._session: Session | None = None
        self._last_transaction = _NO_TRANSACTION
        self._readers: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls, path: str | Path, columns: Mapping[str, Sequence[str]] = WATCHED, *, within: float = 10.0
    ) -> Ovsdb:
        """Returns once the watched rows are here. Raises Unavailable after `within` seconds."""
        db = cls(path, columns)
        listed = db.changes()
        db._task = asyncio.create_task(db._follow(), name=f"ovsdb {path}")
        try:
            async with asyncio.timeout(within):
                await anext(listed)
        except TimeoutError:
            await db.close()
            raise Unavailable(f"no answer of OVSDB at {path}: ovsdb-server does not run") from None
        except BaseException:
            await db.close()
            raise
        return db

    async def close(self) -> None:
        """Stop following; readers of `changes` get Unavailable."""
        # let go of the task: its cancellation holds the frame that holds us, in a circle the collector does not see
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    @property
    def connected(self) -> bool:
        """Rows are as the server has them, and it takes transactions."""
        return self._session is not None

    async def probe(self, within: float = RESPONSE_TIMEOUT) -> None:
        """Wait for the answer to an echo; a server that is not connected is not asked. Raises Unavailable."""
        if self._session is None:
            return
        try:
            async with asyncio.timeout(within):
                await self._session.call("echo")
        except TimeoutError:
            raise Unavailable(f"no answer of ovsdb-server to an echo within {within:g} s") from None
        except RpcError as error:
            raise Unavailable(f"no answer of ovsdb-server to an echo: {error}") from error

    def rows(self, table: str) -> Mapping[str, Row]:
        """uuid -> row, as of now"""
        return self._replica.rows(table)

    def row(self, table: str, name: str) -> Row | None:
        """The row of that name, as of now"""
        return self._replica.row(table, name)

    @property
    def root(self) -> Row:
        """The only row of table Open_vSwitch. Raises Unavailable if the database is not initialised yet."""
        for row in self.rows("Open_vSwitch").values():
            return row
        raise Unavailable("OVSDB has no row of table Open_vSwitch: it is not initialized")

    def changes(self) -> Changes:
        """Return the changes from now on; read the replica first, and nothing is missed."""
        reader = Changes()
        self._readers.add(reader)
        return reader

    async def until(self, true: Callable[[], T | None], what: str, *, within: float) -> T:
        """Wait until `true` finds something in the replica, and return it. Raises Unavailable(what) after `within` seconds."""
        changes = self.changes()
        try:
            async with asyncio.timeout(within):
                while (value := true()) is None:
                    await anext(changes)
        except TimeoutError:
            raise Unavailable(what) from None
        return value

    async def transact(self, *operations: Mapping[str, Any], within: float = 5.0) -> list[dict[str, Any]]:
        """Run <operations> (RFC 7047, 5.2) atomically; the replica has seen the effect when this returns.

        Returns one result per operation. Raises Refused with OVSDB's words (entries: the operation it names, or all
        of them), Unavailable if there is no connection or no answer `within` that many seconds: the outcome is unknown.
        """
        if self._session is None:
            raise Unavailable(f"no connection to OVSDB at {self._path}")
        try:
            async with asyncio.timeout(within):
                results = await self._session.call("transact", DATABASE, *operations)
        except TimeoutError:
            raise Unavailable(f"no answer of OVSDB within {within:g} s") from None
        except RpcError as error:
            raise Refused(operations, str(error)) from error
        for operation, result in zip([*operations, None], results, strict=False):
            if result is not None and "error" in result:
                raise Refused([operation] if operation else operations, str(RpcError(result)))
        return list(results)

    async def _follow(self) -> None:
        cause: BaseException = Unavailable("the OVSDB client is closed")
        delay = _BACKOFF[0]
        try:
            while True:
                if await self._one_session():
                    delay = _BACKOFF[0]
                await asyncio.sleep(delay)
                delay = min(2 * delay, _BACKOFF[1])
        except Exception as error:  # noqa: BLE001 (every reader ends with it)
            cause = error
        finally:
            for reader in self._readers:
                reader.end(cause)

    async def _one_session(self) -> bool:
        """Follow one connection to its end; returns whether it got as far as the list."""
        try:
            session = await Session.open(self._path)
        except OSError:
            return False
        session.on_notification = self._notified
        reading = asyncio.create_task(session.run())
        try:
            await self._list(session)
            await reading
        except (Unavailable, RpcError):
            return False
        finally:
            self._session = None
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled() and (bug := reading.exception()):
                raise bug
        return True

    async def _list(self, session: Session) -> None:
        schema = await session.call("get_schema", DATABASE)
        self._replica.schema = watched_schema(schema, self._columns)
        requests = {
            table: [{"columns": list(columns)}] for table, columns in self._replica.schema.items() if columns
        }
        monitor = (DATABASE, _MONITOR, requests)
        since = self._last_transaction
        try:
            await session.call(
                "monitor_cond_since", *monitor, since, then=lambda rest: self._listed(session, *rest)
            )
        except RpcError as error:
            if error.error != "unknown method":
                raise
            unknown = (False, _NO_TRANSACTION)
            await session.call(
                "monitor_cond", *monitor, then=lambda rows: self._listed(session, *unknown, rows)
            )

    def _listed(
        self, session: Session, is_known: bool, last_transaction: str, updates: Mapping[str, Any]
    ) -> None:
        self._last_transaction = last_transaction
        self._session = session
        self._apply_updates(updates, whole=not is_known)

    def _notified(self, method: str, params: Any) -> None:
        if method == "update3":
            self._last_transaction = params[1]
            self._apply_updates(params[2], whole=False)
        elif method == "update2":
            self._apply_updates(params[1], whole=False)

    def _apply_updates(self, updates: Mapping[str, Any], *, whole: bool) -> None:
        touched = self._replica.apply(updates, whole=whole)
        for reader in self._readers:
            reader.add(touched)
