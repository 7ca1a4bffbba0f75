"""Rights that features declare: the rules of a ClusterRole, and those that a gate of the chart adds."""

from __future__ import annotations

import pytest
import yaml

from antrea.antctl.commands import DATA_COMMANDS
from antrea.features import FEATURES
from antrea.features.framework.plug import declared
from antrea.features.framework.rbac import CRD, FOLLOW, Rule, template_rules
from antrea.features.registry.rbac import AGENT_RULES, ANTCTL_RULES, CONTROLLER_RULES

PODS = Rule("Pods of the Node", "", ("pods",), FOLLOW)
JOBS = Rule("Jobs", "batch", ("jobs", "cronjobs"), ("get",), gate="L7FlowExporter")
TIERS = Rule("", CRD, ("tiers",), ("patch",), names=("baseline",))


def test_rules_are_those_of_a_cluster_role_with_their_purposes_as_comments() -> None:
    text = "\n".join(template_rules((PODS, TIERS)))
    assert text.startswith("  # Pods of the Node\n  - apiGroups")
    assert yaml.safe_load(text) == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": [CRD], "resources": ["tiers"], "resourceNames": ["baseline"], "verbs": ["patch"]},
    ]


@pytest.mark.parametrize("rules", [(PODS, JOBS, TIERS), (JOBS,), (JOBS, JOBS, PODS)])
def test_rules_of_a_gate_are_in_a_block_of_it(rules: tuple[Rule, ...]) -> None:
    lines = list(template_rules(rules))
    start = next(number for number, line in enumerate(lines) if "L7FlowExporter" in line)
    end = lines.index("{{- end }}")
    inside, outside = "\n".join(lines[start + 1 : end]), "\n".join((*lines[:start], *lines[end + 1 :]))
    assert "batch" in inside
    assert "batch" not in outside
    assert "pods" not in inside
    assert "tiers" not in inside
    assert sum("{{- if" in line for line in lines) == lines.count("{{- end }}") == 1


@pytest.mark.parametrize(
    ("attribute", "rules"), [("AGENT_RULES", AGENT_RULES), ("CONTROLLER_RULES", CONTROLLER_RULES)]
)
def test_a_program_has_the_rights_of_all_features_and_none_on_everything(
    attribute: str, rules: tuple[Rule, ...]
) -> None:
    of_features = [rule for group in declared(FEATURES, "rbac", Rule, attribute).values() for rule in group]
    assert of_features
    assert list(rules[-len(of_features) :]) == of_features
    assert not [rule for rule in rules if "*" in (rule.group, *rule.resources, *rule.verbs)]


def test_users_of_antctl_may_read_what_its_commands_read() -> None:
    urls = {url for rule in ANTCTL_RULES for url in rule.urls}
    granted = {
        (rule.group, resource, verb)
        for rule in ANTCTL_RULES
        for resource in rule.resources
        for verb in rule.verbs
    }
    for row in DATA_COMMANDS:
        if not row.is_resource and "A" in row.modes:
            assert row.path in urls
        if row.is_resource and "R" in row.modes:
            group, _, resource = row.path.split("/")[:3]
            assert (group, resource, "create" if row.body else "get") in granted


@pytest.mark.parametrize("rules", [AGENT_RULES, CONTROLLER_RULES], ids=["agent", "controller"])
def test_a_program_may_read_each_object_whose_status_it_writes(rules: tuple[Rule, ...]) -> None:
    granted = {
        (rule.group, resource, verb) for rule in rules for resource in rule.resources for verb in rule.verbs
    }
    written = {
        (group, resource.removesuffix("/status"))
        for group, resource, verb in granted
        if verb == "patch" and resource.endswith("/status")
    }
    assert written
    assert not {(group, resource, "get") for group, resource in written} - granted
