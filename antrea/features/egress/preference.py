"""What a user may wish of the place of an Egress IP, by annotations of the Egress: preferred Nodes, and when to go back.

Beyond upstream, where the ring of hashes alone decides.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from antrea.apis.annotation import FAILBACK, PREFERRED_NODES
from antrea.apis.core import Node
from antrea.features.admission import Find, Warn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.features.admission import Steps

IMMEDIATE: Final = "immediate"
NEVER: Final = "never"
WHEN_IDLE: Final = "when-idle"
MOST_LOOKED_UP: Final = 16
"""Preferred Nodes that admission looks for: each costs a request."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def preferred_nodes(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """In the user's order, each once."""
    names = (name.strip() for name in annotations.get(PREFERRED_NODES, "").split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def doubts(annotations: Mapping[str, str], pool: str) -> Steps:
    """Warns of what does not do what it says; the Egress works without."""
    yield from map(Warn, _unknown(annotations))
    if not pool and (PREFERRED_NODES in annotations or FAILBACK in annotations):
        yield Warn("annotations egress.antrea.io/... have no effect without spec.externalIPPool")
    value = annotations.get(FAILBACK, IMMEDIATE).strip()
    if value == WHEN_IDLE:
        yield Warn(f"annotation {FAILBACK}: {WHEN_IDLE} is not built yet, it counts as {IMMEDIATE}")
    elif value not in (IMMEDIATE, NEVER):
        yield Warn(
            f"annotation {FAILBACK}: {value!r} is not {IMMEDIATE} or {NEVER}, it counts as {IMMEDIATE}"
        )
    for name in preferred_nodes(annotations)[:MOST_LOOKED_UP]:
        known = _NAME.fullmatch(name) and (yield Find(f"/api/v1/nodes/{name}", Node))
        if not known:
            yield Warn(f"annotation {PREFERRED_NODES}: there is no Node {name!r}")


def _unknown(annotations: Mapping[str, str]) -> Iterator[str]:
    known = {key.partition("/")[2]: key for key in (PREFERRED_NODES, FAILBACK)}
    group = PREFERRED_NODES.partition("/")[0]
    for key in sorted(annotations):
        whose, _, name = key.partition("/")
        if whose == group and name not in known:
            near = get_close_matches(name, known, 1)
            yield f"annotation {key} is not known" + (f": did you mean {known[near[0]]}?" if near else "")
