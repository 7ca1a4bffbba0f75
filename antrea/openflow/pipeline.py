"""The realized pipeline: which number each table has on this Node, and the flows that every table starts with."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from antrea.openflow.action import DROP, goto, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import arp, dst, ip, ipv6
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT, Miss, PipelineId, Stage, Table
from antrea.openflow.tables import (
    ARP_SPOOF_GUARD,
    IPV6,
    PIPELINE_IP_CLASSIFIER,
    PIPELINE_ROOT_CLASSIFIER,
    TABLES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MULTICAST_CIDR = "224.0.0.0/4"

_ALL = tuple(sorted(TABLES, key=lambda table: table.pipeline))
"""Table n has id n, on every Node."""
_SYMBOL = re.compile(r"\{([^}]*)\}")
_default = flows_of(Category.DEFAULT)


class Pipeline(msgspec.Struct, frozen=True):
    """The tables that active features asked for, in order of their ids.

    A table has the same id whatever others are realized: the flows of an earlier configuration, which remain until the sweep,
    then keep their meaning, and so do packets that connection tracking passes on meanwhile. Upstream numbers what is
    realized without gaps, and deletes all flows first.
    """

    tables: tuple[Table, ...]
    ids: dict[str, int]
    following: dict[str, str]
    """The next table in its pipeline, of each that is not the last of it."""

    @classmethod
    def realize(cls, tables: Iterable[Table]) -> Pipeline:
        """The tables with their numbers: pipelines in order of their id, tables in order of declaration.

        The root table is always there. Raises ValueError on a table that is not declared in `tables.py`.
        """
        wanted = {PIPELINE_ROOT_CLASSIFIER, *tables}
        for table in wanted.difference(TABLES):
            raise ValueError(f"table {table.name} is not declared")
        numbered = [(n, table) for n, table in enumerate(_ALL) if table in wanted]
        tables = tuple(table for _, table in numbered)
        following = {
            table.name: two.name for table, two in pairwise(tables) if table.pipeline == two.pipeline
        }
        return cls(tables, {table.name: n for n, table in numbered}, following)

    def id(self, name: str) -> int:
        """Number of a table; raises ValueError if no active feature asked for it."""
        if name not in self.ids:
            raise ValueError(f"table {name} is not realized")
        return self.ids[name]

    def table(self, name: str) -> Table:
        """A realized table; raises ValueError."""
        return _ALL[self.id(name)]

    def name_of(self, number: int) -> str:
        """Name of the realized table with this id, as a packet-in has it; empty if there is none."""
        table = _ALL[number] if number < len(_ALL) else None
        return table.name if table and self.has(table) else ""

    def has(self, table: Table) -> bool:
        return table.name in self.ids

    def of(self, pipeline: PipelineId) -> tuple[Table, ...]:
        """The realized tables of one pipeline, in order; empty if it is not realized."""
        return tuple(table for table in self.tables if table.pipeline == pipeline)

    def next(self, name: str) -> str:
        """Name of the table after `name` in its pipeline; raises ValueError on the last one."""
        self.id(name)
        if name not in self.following:
            raise ValueError(f"table {name} is the last of its pipeline")
        return self.following[name]

    def first(self, stage: Stage, name: str) -> str:
        """Name of the first table of `stage`, or of the next stage that has one, in the pipeline of `name`."""
        for table in self.of(self.table(name).pipeline):
            if table.stage >= stage:
                return table.name
        raise ValueError(f"no table of stage {stage.name} or later in the pipeline of {name}")

    def resolve(self, symbol: str, table: str = "") -> str:
        """Name of the table that a placeholder in a flow of `table` means."""
        kind, _, name = symbol.rpartition(":")
        if kind == "stage":
            return self.first(Stage[name], table)
        if kind == "after":
            return self.next(name)
        if symbol == NEXT.value:
            return self.next(table)
        self.id(name)
        return name

    def render(self, text: str, table: str = "") -> str:
        """Actions with table numbers, for the wire."""
        if "{" not in text:
            return text
        return _SYMBOL.sub(lambda match: str(self.ids[self.resolve(match[1], table)]), text)

    def named(self, text: str, table: str = "") -> str:
        """Actions with table names, for people."""
        return _SYMBOL.sub(lambda match: self.resolve(match[1], table), text)

    def default_flows(self) -> Iterator[Flow]:
        """Yield the flows that exist whatever features do: misses, and the entry of each pipeline.

        parity: pkg/agent/openflow/pipeline.go defaultFlows
        """
        for table in self.tables:
            if self._drops(table):
                yield _default(table, Priority.MISS, then=DROP)
            elif table.miss is Miss.NEXT:
                yield _default(table, Priority.MISS, then=[goto(NEXT)])
        yield from self._entries()

    def _drops(self, table: Table) -> bool:
        return table.miss is Miss.DROP or self.of(table.pipeline)[-1] == table

    def _entries(self) -> Iterator[Flow]:
        root = PIPELINE_ROOT_CLASSIFIER
        ip_tables = self.of(PipelineId.IP)
        arp_tables = self.of(PipelineId.ARP)
        multicast = self.of(PipelineId.MULTICAST)
        non_ip = self.of(PipelineId.NON_IP)
        if arp_tables:
            yield _default(root, Priority.NORMAL, arp, then=[goto(arp_tables[0])])
        if ip_tables and (self.has(ARP_SPOOF_GUARD) or non_ip):
            yield _default(root, Priority.NORMAL, ip, then=[goto(ip_tables[0])])
        if ip_tables and (self.has(IPV6) or non_ip):
            yield _default(root, Priority.NORMAL, ipv6, then=[goto(ip_tables[0])])
        if multicast and self.has(PIPELINE_IP_CLASSIFIER):
            yield _default(
                PIPELINE_IP_CLASSIFIER, Priority.HIGH, dst(MULTICAST_CIDR), then=[resubmit(multicast[0])]
            )
        if non_ip:
            yield _default(root, Priority.LOW, then=[goto(non_ip[0])])
