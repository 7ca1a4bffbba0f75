"""Values of the Helm chart: those of upstream's chart work, are refused or are without effect, and what agents refuse is not rendered."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendered_chart import CHART, template

from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.load import parse
from antrea.errors import Invalid
from antrea.features.framework.config_validation import accept_agent, accept_controller
from antrea.features.framework.gate import GATES, STAGE_SWITCHES

ROOT = Path(__file__).parents[2]
UPSTREAM = (ROOT / "tests/golden/chart_values.txt").read_text().split()
"""Names of the values of upstream's chart, without those of their parts that are objects of Kubernetes."""
WITHOUT_EFFECT = ("agent.antreaIPsec", "agent.antreaSysctlInit", "ipsec.psk")
"""Values, and sections of values, that are read by features only that are not built, and whose own switch is refused (docs/install.md)."""
SAMPLES: dict[str, Any] = {
    "agent.antreaAgent.securityContext.capabilities": {"privileged": False, "capabilities": ["SYS_TIME"]},
    "agent.dnsPolicy": "Default",
    "agentImage.pullPolicy": "Never",
    "controllerImage.pullPolicy": "Always",
    "agent.kubeletRootDir": "/var/lib/other",
    "antreaProxy.nodePortAddresses": ["10.0.0.0/8"],
    "antreaProxy.serviceHealthCheckServerBindAddress": "127.0.0.1:1",
    "antreaProxy.skipServices": ["a/b"],
    "controller.apiNodePort": 30001,
    "egress.exceptCIDRs": ["10.0.0.0/8"],
    "egress.maxEgressIPsPerNode": 7,
    "egress.snatFullyRandomPorts": True,
    "flowExporter.flowCollectorAddr": "10.0.0.1:4739:tcp",
    "flowExporter.protocolFilter": ["tcp"],
    "multicast.igmpQueryVersions": [3],
    "nodeIPAM.clusterCIDRs": ["10.0.0.0/8"],
    "nodeIPAM.enable": {"enable": True, "clusterCIDRs": ["10.0.0.0/8"]},
    "nodePortLocal.portRange": "40000-41000",
    "podCIDRs": "10.0.0.0/8",
    "secondaryNetwork.ovsBridges": [{"bridgeName": "br1"}],
    "tlsMinVersion": "VersionTLS13",
    "transportInterfaceCIDRs": ["10.0.0.0/8"],
}
"""Another value than the default, where the type of the default does not tell one; values of its section with the value's own name among them."""


def nested(path: str, value: Any) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {head: nested(rest, value) if rest else value}


def default_of(path: str) -> Any:
    at: Any = yaml.safe_load((CHART / "values.yaml").read_text())
    for name in path.split("."):
        at = at.get(name) if isinstance(at, dict) else None
    return at


def choices_of(schema: dict[str, Any], prefix: str = "") -> dict[str, tuple[Any, ...]]:
    """Values with a choice, of those that become keys of a configuration or are switches of the chart."""
    found: dict[str, tuple[Any, ...]] = {}
    for name, part in schema.get("properties", {}).items():
        if name in (
            "featureGates",
            "flowVisibility",
            "flowAggregator",
            "agentImage",
            "controllerImage",
            "image",
        ):
            continue
        if part.get("type") == "boolean":
            found[prefix + name] = (False, True)
        elif "enum" in part:
            found[prefix + name] = tuple(part["enum"])
        else:
            found |= choices_of(part, f"{prefix}{name}.")
    return found


CHOICES = choices_of(json.loads((CHART / "values.schema.json").read_text()))


def other_than_default(path: str) -> Any:
    """A value of the same type that is not the default."""
    if path in SAMPLES:
        return SAMPLES[path]
    now = default_of(path)
    if path in CHOICES:
        return next(value for value in CHOICES[path] if value not in (now, ""))
    name = path.rpartition(".")[2]
    if name in ("tolerations", "extraVolumes", "extraVolumeMounts"):
        return [{"key": "x", "name": "x"}]
    if isinstance(now, bool) or path.endswith((".enable", ".privileged", "testing.coverage")):
        return not now
    if isinstance(now, int):
        return now + 1
    if isinstance(now, list):
        return ["x"]
    if isinstance(now, dict) or name in ("resources", "nodeSelector"):
        return {"x": "y"}
    return "9s" if name.endswith(("Interval", "Timeout")) else "10.9.0.0/16" if "CIDR" in name else "x"


@pytest.mark.parametrize("path", UPSTREAM)
def test_each_value_of_upstreams_chart_works_or_is_refused_or_is_without_effect(path: str) -> None:
    other = other_than_default(path)
    section, _, name = path.rpartition(".")
    at = section if isinstance(other, dict) and name in other else path
    done = template(nested(at, other))
    if done.returncode:
        assert path in done.stderr, done.stderr
    else:
        assert (done.stdout == default_objects()) == path.startswith(WITHOUT_EFFECT), path
        assert refused(done.stdout) == []


@cache
def default_objects() -> str:
    return template({}).stdout


def test_the_page_on_installation_names_values_without_effect() -> None:
    page = (ROOT / "docs/install.md").read_text()
    assert [path for path in WITHOUT_EFFECT if f"`{path}" not in page] == []


def random_values(chance: random.Random) -> dict[str, Any]:
    """A few values that become keys, and a few gates."""
    values: dict[str, Any] = {}
    for path in chance.sample(sorted(CHOICES), chance.randrange(5)):
        at = values
        *sections, name = path.split(".")
        for section in sections:
            at = at.setdefault(section, {})
        at[name] = chance.choice(CHOICES[path])
    names = [*STAGE_SWITCHES, *(gate.name for gate in GATES)]
    gates = {name: chance.random() < 0.7 for name in chance.sample(names, chance.randrange(3))}
    return values | ({"featureGates": gates} if gates else {})


def refused(text: str) -> list[str]:
    """What agents and controllers refuse of a rendered chart."""
    [config] = [one["data"] for one in yaml.safe_load_all(text) if one["kind"] == "ConfigMap"][:1]
    wrong = []
    try:
        accept_agent(parse(AgentConfig, config["antrea-agent.conf"]).config)
    except Invalid as error:
        wrong.append(str(error))
    try:
        accept_controller(parse(ControllerConfig, config["antrea-controller.conf"]).config)
    except Invalid as error:
        wrong.append(str(error))
    return wrong


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        pytest.param(0, 12, id="few"),
        *(pytest.param(seed, 40, id=str(seed), marks=pytest.mark.wide) for seed in range(10)),
    ],
)
def test_the_chart_renders_nothing_that_agents_or_controllers_refuse(seed: int, number: int) -> None:
    chance, counts = random.Random(seed), {True: 0, False: 0}
    for _ in range(number):
        done = template(values := random_values(chance))
        counts[done.returncode == 0] += 1
        if done.returncode == 0:
            assert refused(done.stdout) == [], values
        else:
            assert "values that cannot work" in done.stderr, done.stderr
    assert min(counts.values()) > number // 12, counts


def test_all_wrong_values_are_named_at_once() -> None:
    wrong = {
        "podCIDRs": "all",
        "tunnelType": "stt",
        "noSNAT": True,
        "featureGates": {"Multicast": True},
        "multicast": {"enable": True},
    }
    words = template(wrong).stderr
    assert [
        name
        for name in ("podCIDRs:", "tunnelType:", "noSNAT:", "featureGates.Multicast:", "multicast.enable:")
        if name not in words
    ] == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"logVerbocity": 4}, "'logVerbocity' not allowed"),
        ({"antreaProxy": {"proxyall": True}}, "at '/antreaProxy': additional properties 'proxyall' not allowed"),
        ({"flowVisibility": {"enable": "false"}}, "at '/flowVisibility/enable': got string, want boolean"),
        ({"featureGates": None}, "missing property 'featureGates'"),
        ({"featureGates": {"Egres": True}}, "'Egres' not allowed"),
        ({"defaultMTU": "abc"}, "at '/defaultMTU': got string, want integer"),
        ({"serviceCIDR": "10.0.0.0"}, "serviceCIDR: '10.0.0.0' is not a CIDR such as 10.96.0.0/12"),
        ({"egress": {"exceptCIDRs": ["10.0.0.0/8", "10.0.0.0/33"]}}, "egress.exceptCIDRs[1]: '10.0.0.0/33' is not a CIDR"),
        ({"nodePortLocal": {"portRange": "9-1"}}, "nodePortLocal.portRange: '9-1' is not a port range"),
        ({"hostGateway": "a234567890123456"}, "hostGateway: 'a234567890123456' is not the name of an interface"),
        ({"flowAggregator": {"config": {"store": {"retention": "1x"}}}}, "flowAggregator.config.store.retention: '1x' is not a duration"),
        ({"trafficEncapMode": "encpa"}, "at '/trafficEncapMode': value must be one of"),
        ({"agentImage": {"repository": "antrea/antrea-agent-ubuntu"}}, "is an image of Antrea"),
        ({"flowAggregator": {"config": {"clickhouse": {"enable": True}}}}, "'clickhouse' not allowed"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_its_name(values: dict[str, Any], says: str) -> None:
    done = template(values)
    assert (done.returncode != 0, says in done.stderr) == (True, True), done.stderr
