"""Turns records whose direction is unknown, so that they have that of the other Node's record, or of an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from antrea.apis.flow import BiflowDirection, FlowRecord, FlowType

if TYPE_CHECKING:
    Key = tuple[int, str, int, str, int]

_ARBITRARY: Final = int(BiflowDirection.ARBITRARY)
_NAMES: Final = FlowRecord.__struct_fields__
_TYPES: Final = {
    int(FlowType.TO_EXTERNAL): int(FlowType.FROM_EXTERNAL),
    int(FlowType.FROM_EXTERNAL): int(FlowType.TO_EXTERNAL),
}
_OF_ONE_WAY: Final = ("ingress_network_policy", "egress_")
"""Beginnings of the names of fields that are about the direction of the first packet: policies of both ends, and the Egress."""


def is_arbitrary(record: FlowRecord) -> bool:
    """Whether it is not known which end has opened the connection."""
    return record.biflow_direction == _ARBITRARY


def turned_key(key: Key) -> Key:
    """Return the key of the connection seen from the other end."""
    protocol, source, port, destination, other = key
    return protocol, destination, other, source, port


def turned(record: FlowRecord) -> FlowRecord:
    """The record with its ends exchanged, without the rules and the Egress of the direction that it is not."""
    made = msgspec.structs.replace(record)
    for name, other in _PAIRS:
        setattr(made, name, getattr(record, other))
    for name, default in _CLEARED:
        setattr(made, name, default)
    made.flow_type = _TYPES.get(record.flow_type, record.flow_type)
    return made


def _other(name: str) -> str:
    """The field that has the same of the other end, or of the other direction; the same name if there is none."""
    turned_name = (
        name.replace("source_", "\0").replace("destination_", "source_").replace("\0", "destination_")
    )
    if "_count" in name or "throughput" in name:
        is_reverse = turned_name.startswith("reverse_")
        turned_name = turned_name.removeprefix("reverse_") if is_reverse else f"reverse_{turned_name}"
    return turned_name if turned_name in _NAMES else name


_PAIRS: Final = tuple((name, other) for name in _NAMES if (other := _other(name)) != name)
_CLEARED: Final = tuple(
    (field.name, field.default)
    for field in msgspec.structs.fields(FlowRecord)
    if field.name.startswith(_OF_ONE_WAY)
)
