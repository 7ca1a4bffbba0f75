"""A plain reading of policies and groups, object by object: who may be whose peer. Shares nothing with the controller."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]
Who = str
"""`NAMESPACE/NAME` of a Pod, `entity NAMESPACE/NAME`, `node NAME`, or a CIDR as a peer."""
EVERYBODY = {"0.0.0.0/0", "::/0"}
HOME = "s1"
"""Namespace of Groups and NetworkPolicies."""


def fits(selector: Spec | None, labels: Spec) -> bool:
    """No selector fits everybody."""
    wanted = selector or {}
    for key, value in wanted.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for one in wanted.get("matchExpressions", ()):
        value, listed = labels.get(one["key"]), one.get("values", ())
        right = {
            "In": value in listed,
            "NotIn": value not in listed,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not right[one["operator"]]:
            return False
    return True


class Oracle:
    """All objects, by kind and name as users know it."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Spec]] = {}

    def all(self, kind: str) -> dict[str, Spec]:
        return self.objects.get(kind, {})

    # who is selected; True: wherever it is, False: only while its Namespace is known

    def selected(self, home: str, found: Spec) -> dict[Who, bool]:
        """By the selectors of a peer, an appliedTo or a group of the Namespace `home`, "" for the cluster."""
        pods, spaces = found.get("podSelector"), found.get("namespaceSelector")
        entities, nodes = found.get("externalEntitySelector"), found.get("nodeSelector")
        if nodes is not None:
            return {
                f"node {name}": False for name, one in self.all("Node").items() if fits(nodes, one["labels"])
            }
        if not home and pods is None and spaces is None and entities is None:
            return {}
        kind, labels = ("Pod", pods) if entities is None else ("ExternalEntity", entities)
        mark = "" if entities is None else "entity "
        return {
            f"{mark}{name}": False
            for name, one in self.all(kind).items()
            if self._near(home, spaces, name) and fits(labels, one["labels"])
        }

    def _near(self, home: str, spaces: Spec | None, name: str) -> bool:
        space = name.partition("/")[0]
        if spaces is None:
            return home in ("", space)
        known = self.all("Namespace").get(space)
        if not (spaces.get("matchLabels") or spaces.get("matchExpressions")):
            return True
        return known is not None and fits(spaces, known["labels"])

    def account(self, found: Spec) -> dict[Who, bool]:
        return {
            name: True
            for name, one in self.all("Pod").items()
            if name.startswith(f"{found['namespace']}/") and one["account"] == found["name"]
        }

    def group(self, home: str, name: str) -> tuple[dict[Who, bool], set[str]]:
        """Members and blocks."""
        found = self.all("Group" if home else "ClusterGroup").get(f"{home}/{name}")
        if found is None:
            return {}, set()
        children = [f"{home}/{child}" for child in found.get("childGroups", ())]
        if not children:
            return self._leaf(home, found)
        known = [
            one for child in children if (one := self.all("Group" if home else "ClusterGroup").get(child))
        ]
        if any(one.get("childGroups") for one in known):
            return {}, set()
        leaves = [self._leaf(home, one) for one in known]
        members: dict[Who, bool] = {}
        for some, _ in leaves:
            members |= {who: here or members.get(who, False) for who, here in some.items()}
        return members, {block for _, blocks in leaves for block in blocks}

    def _leaf(self, home: str, found: Spec) -> tuple[dict[Who, bool], set[str]]:
        if "ipBlocks" in found:
            return {}, {one["cidr"] for one in found["ipBlocks"]}
        if (reference := found.get("serviceReference")) is not None:
            service = self.all("Service").get(f"{reference['namespace']}/{reference['name']}")
            if service is None or not service["selector"]:
                return {}, set()
            wanted = {"podSelector": {"matchLabels": service["selector"]}}
            return dict.fromkeys(self.selected(reference["namespace"], wanted), True), set()
        return self.selected(home, found), set()

    # what a policy says

    def space(self, who: Who) -> str:
        return who.removeprefix("entity ").partition("/")[0]

    def peers(self, home: str, found: Spec) -> set[Who]:
        if "group" in found:
            members, blocks = self.group(home, found["group"])
            return {who for who in members if self._addressed(who)} | blocks
        if "ipBlock" in found:
            return {found["ipBlock"]["cidr"]}
        if "serviceAccount" in found:
            return {who for who in self.account(found["serviceAccount"]) if self._addressed(who)}
        return {who for who in self.selected(home, found) if self._addressed(who)}

    def _addressed(self, who: Who) -> bool:
        pod = self.all("Pod").get(who)
        return pod is None or bool(pod["ip"])

    def node(self, who: Who) -> str:
        """Where it is enforced, "" for nowhere."""
        if who.startswith("node "):
            return who.removeprefix("node ")
        if who.startswith("entity "):
            return str(self.all("ExternalEntity")[who.removeprefix("entity ")]["node"])
        return str(self.all("Pod")[who]["node"])

    def targets(self, home: str, applied: list[Spec], *, split: bool) -> tuple[set[Who], bool]:
        """Whom it is for, and whether that may not be. `split`: by Namespace."""
        found: dict[Who, bool] = {}
        strange = False
        for one in applied:
            if "group" in one:
                members, _ = self.group(home, one["group"])
                found_group = self.all("Group" if home else "ClusterGroup").get(f"{home}/{one['group']}", {})
                if found_group.get("childGroups"):
                    members = {who: here for who, here in members.items() if not who.startswith("node ")}
                if home and any(self.space(who) != home for who in members):
                    strange = True
                    continue
            elif "serviceAccount" in one:
                members = self.account(one["serviceAccount"])
            else:
                members = self.selected(home, one)
            found |= {who: here or found.get(who, False) for who, here in members.items()}
        if split:
            found = {
                who: here
                for who, here in found.items()
                if not who.startswith("node ") and (here or self.space(who) in self.all("Namespace"))
            }
        return {who for who in found if self.node(who)}, strange

    def told(self, home: str, spec: Spec) -> tuple[dict[tuple[str, int], set[tuple[Who, Who]]], set[str]]:
        """Pairs of each rule by direction and number, and the Nodes that the policy is for."""
        sides = (
            [("In", "from", one) for one in spec["ingress"]],
            [("Out", "to", one) for one in spec["egress"]],
        )
        split = any("namespaces" in peer for side in sides for _, key, rule in side for peer in rule[key])
        pairs: dict[tuple[str, int], set[tuple[Who, Who]]] = {}
        whom: set[Who] = set()
        strange = False
        if not split:
            whom, strange = self.targets(home, spec["appliedTo"], split=False)
        for side in sides:
            for number, (direction, key, rule) in enumerate(side):
                applied = rule.get("appliedTo") or spec["appliedTo"]
                everywhere = [one for one in rule[key] if "namespaces" not in one]
                found = pairs.setdefault((direction, number), set())
                if everywhere or not rule[key]:
                    own, no = self.targets(home, applied, split=False)
                    others = {who for one in everywhere for who in self.peers(home, one)}
                    found |= {(one, two) for one in own for two in (others if rule[key] else EVERYBODY)}
                    whom, strange = whom | own, strange or no
                for peer in (one for one in rule[key] if "namespaces" in one):
                    more, own = self._related(applied, peer)
                    found |= more
                    whom |= own
        return pairs, set() if strange else {self.node(who) for who in whom}

    def _related(self, applied: list[Spec], peer: Spec) -> tuple[set[tuple[Who, Who]], set[Who]]:
        own, _ = self.targets("", applied, split=True)
        keys = peer["namespaces"].get("sameLabels")
        everybody = self.selected("", {"podSelector": {}, **peer})
        if keys is None:
            return {
                (a, b)
                for a in own
                for b in everybody
                if self.space(a) == self.space(b) and self._addressed(b)
            }, own
        values = {
            name: tuple(one["labels"][key] for key in keys)
            for name, one in self.all("Namespace").items()
            if all(key in one["labels"] for key in keys)
        }
        own = {who for who in own if self.space(who) in values}
        return {
            (a, b)
            for a in own
            for b in everybody
            if values[self.space(a)] == values.get(self.space(b)) and self._addressed(b)
        }, own
