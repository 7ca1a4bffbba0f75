"""Observed connections from which policies are made and by which they are judged: from the flow aggregator, or from a user's file."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from antrea.antctl import flow_map
from antrea.antctl.failure import Failure
from antrea.antctl.policy.recommendation import Link
from antrea.decoding import guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.antctl.main import Target

MAX_VALUE: Final = {
    "port": 65535, "protocol": 255, "connections": 2**64 - 1, "denied": 2**64 - 1, "unknown": 2**64 - 1,
}  # fmt: skip
MAX_TEXT: Final = 100
"""Maximum length of an invalid end in an error message."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Seen(NamedTuple):
    """Observed connections, and sentences on the records that cannot be used; one bad record affects no other."""

    links: Sequence[Link]
    bad: Sequence[str]


def seen_links(target: Target, namespace: str, since: str, flows: IO[bytes] | None) -> Seen:
    """With an end in this Namespace, in any if it is empty. Raises Failure."""
    if flows and click.get_current_context().get_parameter_source("since") is not ParameterSource.DEFAULT:
        raise Failure("--since: a file has no times: leave it out, or print the file of --flows with it")
    query = {"since": since, "by": "endpoint", **({"namespace": namespace} if namespace else {})}
    records = _json(flows) if flows else flow_map.read(target, query)
    if isinstance(records, dict) and records.get("truncated"):
        raise Failure(
            "the flow aggregator has seen more than one answer holds: ask for less by --since or --namespace"
        )
    prefix, (links, bad) = f"workload/{namespace}/", links_of(records)
    in_it = [
        link
        for link in links
        if not namespace or link.source.startswith(prefix) or link.target.startswith(prefix)
    ]
    return Seen(in_it, bad)


def links_of(answer: Any) -> Seen:
    """Read links from the answer of /flows/map by endpoint. Raises Failure if the answer is malformed or has no usable record."""
    links: list[Link] = []
    bad: list[ValueError] = []
    try:
        for row in answer["links"]:
            try:
                links.append(_link(row))
            except ValueError as error:
                bad.append(error)
        if bad and not links:
            raise bad[0]
    except (KeyError, TypeError, ValueError) as error:
        raise Failure(
            f"--flows: not what `antctl get flowmap --by endpoint -o json` prints: {error}"
        ) from error
    return Seen(links, [f"{len(bad)} that cannot be used, such as: {bad[0]}"] if bad else [])


def _link(row: Mapping[str, Any]) -> Link:
    """Raises KeyError, TypeError, ValueError."""
    row = {"unknown": 0, **row}  # files of earlier versions do not have it
    for key, most in MAX_VALUE.items():
        if type(row[key]) is not int or not 0 <= row[key] <= most:
            raise ValueError(f"{key} {row[key]!r} is not a number from 0 to {most}")
    return Link(_end(row["source"]), _end(row["target"]), *(row[key] for key in MAX_VALUE))


def _end(text: Any) -> str:
    """Raises ValueError."""
    kind, *rest = text.split("/") if isinstance(text, str) else ("",)
    if kind == "workload" and len(rest) == 2 and all(map(_NAME.fullmatch, rest)):
        return str(text)
    if kind == "address" and len(rest) == 1 and "%" not in rest[0]:
        return f"address/{ipaddress.ip_address(rest[0])}"
    raise ValueError(
        f"{str(text)[:MAX_TEXT]!r} is not a workload or address: print the ends with --by endpoint"
    )


def _json(file: IO[bytes]) -> Any:
    try:
        return guarded(file.name, json.load, file)
    except Invalid as error:
        raise Failure(f"--flows: {file.name} is not JSON: {error.why}") from error
