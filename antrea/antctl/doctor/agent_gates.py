"""Objects that only agents act on, while their feature gate is off in agents: no condition and no webhook can name this."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.doctor.state import Finding, edit
from antrea.antctl.failure import Failure
from antrea.antctl.pod_exec import run_in_pod
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.shown import one_line
from antrea.features import FEATURES
from antrea.features.framework.doctor import GatedKind
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHECK = "agent-gates"
MAX_OBJECTS = 20
"""Objects of a kind that are named."""
MAX_NAMED = 5
ALL_AGENTS = "all agents"
MAX_CONCURRENT = 8
"""Agents that are asked at the same time."""
ASKED = ("antctl", "get", "featuregates")
CONTAINER = "antrea-agent"


class WaitingObjects(NamedTuple):
    """Names of objects of a kind on which no agent has acted."""

    kind: GatedKind
    names: tuple[str, ...]
    """Names of the objects without a status."""
    late: tuple[str, ...]
    """Names of the objects whose status the controller has written."""


class GatedObjects(NamedTuple):
    """Findings of this check, and the objects that they name."""

    findings: tuple[Finding, ...]
    named: frozenset[tuple[str, str]] = frozenset()
    """Kind and name of the objects that a finding names as waiting for a gate."""

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the objects that wait for a gate."""
        return frozenset(kind for kind, _ in self.named)


KINDS: tuple[GatedKind, ...] = tuple(
    chain.from_iterable(declared(FEATURES, "doctor", GatedKind, "GATED_KINDS").values())
)


def agent_gates(kubernetes: Server, pods: Mapping[str, Mapping[str, Any]]) -> GatedObjects:
    """Objects of all kinds; `pods` are agents by Node, which are asked if there are such objects. Raises Failure."""
    findings: list[Finding] = []
    waiting: list[WaitingObjects] = []
    for kind in KINDS:
        try:
            items = ask(kubernetes, kind.path, {})["items"]
        except ErrorResponse as error:
            if error.status != 404:
                text = f"{kind.name}: cannot be listed: {error.format_message()}"
                findings.append(Finding("", "error", CHECK, text, ""))
            continue
        if (objects := waiting_objects(kind, items)).names or objects.late:
            waiting.append(objects)
    if not waiting:
        return GatedObjects(tuple(findings))
    gates: dict[str, Mapping[str, bool]] = {}
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        for node, read in zip(
            pods, pool.map(lambda pod: _read_gates(kubernetes, pod), pods.values()), strict=True
        ):
            if isinstance(read, str):
                findings.append(Finding(node, "error", CHECK, read, ""))
            else:
                gates[node] = read
    namespace = next((pod["metadata"]["namespace"] for pod in pods.values()), "")
    by_kind = [gated(objects, gates, namespace) for objects in waiting]
    findings += [finding for objects in by_kind for finding in objects.findings]
    return GatedObjects(tuple(findings), frozenset().union(*(objects.named for objects in by_kind)))


def waiting_objects(kind: GatedKind, items: Sequence[Mapping[str, Any]]) -> WaitingObjects:
    """Return the objects of a kind on which no agent has acted."""
    names = tuple(item["metadata"]["name"] for item in items if not kind.ended(item))
    late = tuple(item["metadata"]["name"] for item in items if kind.waits(item))
    return WaitingObjects(kind, names, late)


def gated(objects: WaitingObjects, gates: Mapping[str, Mapping[str, bool]], namespace: str) -> GatedObjects:
    """Objects of a kind that wait for its gate, by the gates of each Node's agent."""
    kind = objects.kind
    nowhere = bool(gates) and not any(states.get(kind.gate, False) for states in gates.values())
    names = (*objects.names, *objects.late) if nowhere else objects.names
    findings = tuple(unread(kind, names, gates, namespace))
    return GatedObjects(findings, frozenset((kind.name, name) for name in names if findings))


def _read_gates(kubernetes: Server, pod: Mapping[str, Any]) -> Mapping[str, bool] | str:
    """The gates of an agent, or why they are not known."""
    place = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    try:
        done = run_in_pod(kubernetes, place, ASKED, container=CONTAINER)
        if done.code:
            raise Failure(done.stderr.strip() or f"exit code {done.code}")
    except Failure as error:
        return f"feature gates of the agent in Pod {place} cannot be read: {one_line(error.format_message())}"
    return gates_of(done.stdout)


def gates_of(printed: str) -> dict[str, bool]:
    """Whether each gate is on, of the table that `antctl get featuregates` prints."""
    rows = [line.split() for line in printed.splitlines()]
    return {
        row[0]: row[1] == "Enabled" for row in rows if len(row) == 3 and row[1] in ("Enabled", "Disabled")
    }


def unread(
    kind: GatedKind, names: Sequence[str], gates: Mapping[str, Mapping[str, bool]], namespace: str
) -> Iterator[Finding]:
    """One for each object, if the gate of its kind is off in all agents whose gates are known, or in some."""
    off = sorted(node for node, states in gates.items() if not states.get(kind.gate, False))
    if not off:
        return
    repair = f"{edit(namespace)}  # set featureGates.{kind.gate} in antrea-agent.conf"
    where, outcome = ALL_AGENTS, "nothing acts on it"
    if len(off) < len(gates):
        more = f" and {len(off) - MAX_NAMED} more" if len(off) > MAX_NAMED else ""
        where, outcome = f"the agents of Node {', '.join(off[:MAX_NAMED])}{more}", "it has no effect there"
    for name in names[:MAX_OBJECTS]:
        text = f"{kind.name} {name}: the feature gate {kind.gate} is off in {where}: {outcome}"
        yield Finding("", "warning", CHECK, text, repair)
    if len(names) > MAX_OBJECTS:
        yield Finding("", "warning", CHECK, f"{kind.name}: there are more than {MAX_OBJECTS} of them", repair)
