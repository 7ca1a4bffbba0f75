"""From Pods and selectors to members of groups.

A label set finds its selectors by its own labels, so that a new selector is weighed only against Pods that have the
label it asks for, and a new Pod of a known Deployment against nothing at all.
parity: pkg/controller/grouping
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.engine import Unit
from antrea.facts.cluster import Namespace, Pod
from antrea.facts.group import Group, GroupNode, GroupSelector, LabelSet, Match
from antrea.features.admission import Watched
from antrea.features.controller import ControllerFeature
from antrea.features.grouping.member import MEMBERS
from antrea.features.grouping.publication import GroupHead, Membership
from antrea.features.grouping.selector import looks, selects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

LOGGING, TRUE = "networkpolicy.antrea.io/enable-logging", ("1", "t", "T", "TRUE", "true", "True")
"""Words that Go's strconv.ParseBool takes."""
ENDED = ("Succeeded", "Failed")


def pod_row(found: core.Pod) -> Pod | None:
    """None for a Pod that has ended: its address may be another's by now."""
    if found.status.phase in ENDED:
        return None
    meta = found.metadata
    labels = ",".join(f"{key}={value}" for key, value in sorted(meta.labels.items()))
    return Pod(
        sys.intern(meta.namespace),
        meta.name,
        labels=sys.intern(f"{meta.namespace}/{labels}"),
        node=sys.intern(found.spec.node_name),
        ips=tuple(one.ip for one in found.status.pod_ips),
        host_network=found.spec.host_network,
        ports=tuple(
            (sys.intern(port.name), port.container_port, sys.intern(port.protocol))
            for container in found.spec.containers
            for port in container.ports
            if port.name
        ),
    )


def namespace_row(found: core.Namespace) -> Namespace:
    """A Namespace by its labels, and by whether it wants its policies logged."""
    meta = found.metadata
    logs = meta.annotations.get(LOGGING, "") in TRUE
    return Namespace(meta.name, tuple(sorted(meta.labels.items())), logs)


def label_set(_: Facts, pod: Pod) -> Iterator[LabelSet]:
    """Shared by all Pods that have these labels."""
    yield LabelSet(pod.namespace, pod.labels.removeprefix(f"{pod.namespace}/"))


def matches(facts: Facts, found: LabelSet) -> Iterator[Match]:
    """The selectors that mean Pods with these labels."""
    labels, home = found.labels, facts.get(Namespace, found.namespace)
    for place in looks(found, labels, home):
        for selector in facts.by(GroupSelector, "place", place):
            if selects(selector, found, labels, home):
                yield Match(found.key, selector.key)


def memberships(facts: Facts, pod: Pod) -> Iterator[Membership | GroupNode]:
    """All groups that this Pod is in; policies follow the Nodes of those that they are for."""
    for match in facts.by(Match, "labels", pod.labels):
        for group in facts.by(Group, "selector", match.selector):
            if (member := MEMBERS[group.resource](pod)) is not None:
                yield Membership(group.resource, group.name, pod.key, member, pod.node)
                if group.resource == "appliedtogroups":
                    yield GroupNode(group.key, pod.node)


def head(_: Facts, group: Group) -> Iterator[GroupHead]:
    """Known to agents also while it has no members."""
    yield GroupHead(group.resource, group.name, group.uid)


FEATURE = ControllerFeature(
    name="Grouping",
    watched=(
        Watched("/api/v1/pods", core.Pod, Pod, pod_row),
        Watched("/api/v1/namespaces", core.Namespace, Namespace, namespace_row),
    ),
    units=(
        Unit(Pod, label_set, yields=(LabelSet,)),
        Unit(LabelSet, matches, yields=(Match,)),
        Unit(Pod, memberships, yields=(GroupNode,)),
        Unit(Group, head),
    ),
)
