"""Preferences in annotations of an Egress: preferred Nodes, failback, and what becomes of lost connections.

Upstream only has the hash ring.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from antrea.apis.annotation import FAILBACK, LOST_CONNECTIONS, PREFERRED_NODES, SURVIVE
from antrea.apis.core import Node
from antrea.features.framework.admission import Find, Warn
from antrea.features.framework.preference import IMMEDIATE, NEVER, WHEN_IDLE, preferred_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.features.framework.admission import Steps

CONTINUE: Final = "continue"
RESET: Final = "reset"
PORTS: Final = "ports"
NONE: Final = "none"
MAX_LOOKED_UP: Final = 16
"""Maximum number of preferred Nodes that admission looks up: each costs a request."""
MAX_COMPARED: Final = 20
"""Maximum number of unknown annotations that are compared with the known ones; a reply has no more warnings."""


def doubts(annotations: Mapping[str, str], pool: str) -> Steps:
    """Warn of a preference without effect; the Egress works without."""
    yield from map(Warn, _unknown(annotations))
    if not pool and (PREFERRED_NODES in annotations or FAILBACK in annotations):
        yield Warn("annotations egress.antrea.io/... have no effect without spec.externalIPPool")
    value = annotations.get(FAILBACK, IMMEDIATE).strip()
    if value not in (IMMEDIATE, WHEN_IDLE, NEVER):
        known = f"{IMMEDIATE}, {WHEN_IDLE} or {NEVER}"
        yield Warn(f"annotation {FAILBACK}: {value!r} is not {known}, it counts as {IMMEDIATE}")
    lost = annotations.get(LOST_CONNECTIONS, CONTINUE).strip()
    if lost not in (CONTINUE, RESET):
        yield Warn(
            f"annotation {LOST_CONNECTIONS}: {lost!r} is not {CONTINUE} or {RESET}, it counts as {CONTINUE}"
        )
    yield from map(Warn, _survival(annotations))
    for name in preferred_nodes(annotations)[:MAX_LOOKED_UP]:
        if (yield Find("/api/v1/nodes", name, Node)) is None:
            yield Warn(f"annotation {PREFERRED_NODES}: there is no Node {name!r}")


def survives(annotations: Mapping[str, str]) -> bool:
    """Whether the Pods of the Egress get blocks of source ports; not if their lost connections are to be reset."""
    lost = annotations.get(LOST_CONNECTIONS, "").strip()
    return annotations.get(SURVIVE, "").strip() == PORTS and lost != RESET


def _survival(annotations: Mapping[str, str]) -> Iterator[str]:
    value = annotations.get(SURVIVE, NONE).strip()
    if value not in (PORTS, NONE):
        yield f"annotation {SURVIVE}: {value!r} is not {PORTS} or {NONE}, it counts as {NONE}"
    elif value == PORTS and not survives(annotations):
        yield f"annotation {SURVIVE} has no effect: {LOST_CONNECTIONS} is {RESET}"


def _unknown(annotations: Mapping[str, str]) -> Iterator[str]:
    known = {key.partition("/")[2]: key for key in (PREFERRED_NODES, FAILBACK, LOST_CONNECTIONS, SURVIVE)}
    group = PREFERRED_NODES.partition("/")[0]
    keys = ((key, *key.partition("/")) for key in sorted(annotations))
    unknown = [(key, name) for key, whose, _, name in keys if whose == group and name not in known]
    for number, (key, name) in enumerate(unknown):
        near = get_close_matches(name, known, 1) if number < MAX_COMPARED else []
        yield f"annotation {key} is not known" + (f": did you mean {known[near[0]]}?" if near else "")
