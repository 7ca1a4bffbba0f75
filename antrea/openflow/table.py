"""A table of the pipeline, where it stands, and the three ways to name the table that a packet goes to."""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec


class PipelineId(IntEnum):
    """Pipelines in the order in which their tables get ids (pkg/agent/openflow/framework.go)."""

    ROOT = 0
    ARP = 1
    IP = 2
    MULTICAST = 3
    NON_IP = 4


class Stage(IntEnum):
    """Stages of a pipeline, in the order in which a packet passes them (pkg/agent/openflow/framework.go)."""

    START = 0
    CLASSIFIER = 1
    VALIDATION = 2
    CONNTRACK_STATE = 3
    PRE_ROUTING = 4
    EGRESS_SECURITY = 5
    ROUTING = 6
    POST_ROUTING = 7
    SWITCHING = 8
    INGRESS_SECURITY = 9
    CONNTRACK = 10
    OUTPUT = 11


class Miss(Enum):
    """Treatment of a packet that no flow of the table matched."""

    NEXT = "goes to the next table"
    DROP = "is dropped"
    FEATURE = "does what a feature's own flow of priority 0 says"


class Next(Enum):
    """The next realized table of the same pipeline."""

    NEXT = "next"


NEXT = Next.NEXT


class Table(msgspec.Struct, frozen=True):
    """One table, by name; its number is known only to a realized `Pipeline`.

    The last realized table of a pipeline drops, regardless of `miss`.
    """

    name: str
    pipeline: PipelineId
    stage: Stage
    purpose: str
    miss: Miss = Miss.NEXT


Target = Table | Stage | Next


def symbol(target: Target) -> str:
    """The placeholder that stands for a table id in actions: `{Output}`, `{stage:ROUTING}`, `{next}`.

    A stage is its first realized table in the pipeline of the flow, or that of the next stage that has one.
    """
    if isinstance(target, Table):
        return f"{{{target.name}}}"
    if isinstance(target, Stage):
        return f"{{stage:{target.name}}}"
    return "{next}"


def after(table: Table) -> str:
    """The placeholder of the next realized table after `table`, for group buckets, which are in no table."""
    return f"{{after:{table.name}}}"
