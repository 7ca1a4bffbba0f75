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

    from antrea.apis.crd.egress import Egress
    from antrea.features.framework.admission import Steps

CONTINUE: Final = "continue"
RESET: Final = "reset"
PORTS: Final = "ports"
SYNC: Final = "sync"
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
    for name in preferred_nodes(annotations)[:MAX_LOOKED_UP]:
        if (yield Find("/api/v1/nodes", name, Node)) is None:
            yield Warn(f"annotation {PREFERRED_NODES}: there is no Node {name!r}")


def survival(egress: Egress) -> str:
    """Return how connections outlive a gateway: by its field, else by its annotation; not if they are to be reset."""
    annotations = egress.metadata.annotations
    value = egress.spec.survive or annotations.get(SURVIVE, "").strip()
    return value if value in (PORTS, SYNC) and not _resets(annotations) else NONE


def _resets(annotations: Mapping[str, str]) -> bool:
    return annotations.get(LOST_CONNECTIONS, "").strip() == RESET


def survival_doubts(egress: Egress, pool: str) -> Iterator[Warn]:
    """Warn of a way to survive without effect."""
    annotations, field = egress.metadata.annotations, egress.spec.survive
    value = field or annotations.get(SURVIVE, NONE).strip()
    name = "spec.survive" if field else f"annotation {SURVIVE}"
    if value not in (PORTS, SYNC, NONE):
        yield Warn(f"{name}: {value!r} is not {PORTS}, {SYNC} or {NONE}, it counts as {NONE}")
    elif value != NONE and _resets(annotations):
        yield Warn(f"{name} has no effect: {LOST_CONNECTIONS} is {RESET}")
    elif value == SYNC and not pool:
        yield Warn(f"{name}: {SYNC!r} has no effect without spec.externalIPPool")
    if field and annotations.get(SURVIVE, field).strip() != field:
        yield Warn(f"annotation {SURVIVE} has no effect: spec.survive is {field}")


def _unknown(annotations: Mapping[str, str]) -> Iterator[str]:
    known = {key.partition("/")[2]: key for key in (PREFERRED_NODES, FAILBACK, LOST_CONNECTIONS, SURVIVE)}
    group = PREFERRED_NODES.partition("/")[0]
    keys = ((key, *key.partition("/")) for key in sorted(annotations))
    unknown = [(key, name) for key, whose, _, name in keys if whose == group and name not in known]
    for number, (key, name) in enumerate(unknown):
        near = get_close_matches(name, known, 1) if number < MAX_COMPARED else []
        yield f"annotation {key} is not known" + (f": did you mean {known[near[0]]}?" if near else "")
