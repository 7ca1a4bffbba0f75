"""Declaration of a feature's resources of the aggregated API, in module `api_resource` of its folder: `RESOURCES`."""

from __future__ import annotations

from typing import Any

from antrea.apis import controlplane as cp
from antrea.apis import stats
from antrea.apis.resource import CREATED_AT, NAME, Column, Resource, Verb

WATCHED: tuple[Verb, ...] = ("get", "list", "watch")
READ: tuple[Verb, ...] = ("get", "list")
GET: tuple[Verb, ...] = ("get",)
CREATE: tuple[Verb, ...] = ("create",)


def controlplane_resource(
    plural: str, singular: str, struct: type[Any], verbs: tuple[Verb, ...], **more: Any
) -> Resource:
    """Return a row of group controlplane.antrea.io; `more` are further fields of Resource."""
    return Resource(cp.GROUP, cp.VERSION, plural, singular, struct, verbs, missing=singular, **more)


def stats_resource(
    plural: str, singular: str, struct: type[Any], verbs: tuple[Verb, ...], **more: Any
) -> Resource:
    """Return a row of group stats.antrea.io; `more` are further fields of Resource."""
    return Resource(stats.GROUP, stats.VERSION, plural, singular, struct, verbs, **more)


def count_columns(whose: str, *names: str) -> tuple[Column, ...]:
    """Make columns for the totals of these names; `whose` is the kind that they are counted for."""
    return (NAME, *(_total(name, whose) for name in names), CREATED_AT)


def _total(name: str, whose: str) -> Column:
    return Column(
        name.capitalize(), "integer", lambda row: getattr(row.traffic_stats, name), "",
        f"The {name} count hit by the {whose}.",
    )  # fmt: skip
