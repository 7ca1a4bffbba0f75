"""Alerts and dashboards of the chart: each expression is one of Prometheus and names declared series; each alert has its section."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml
from prometheus_rules import DASHBOARDS, HISTOGRAM, alerts, expressions, panels, series

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/alerts.md").read_text()
OTHERS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
"""Series of Prometheus itself, and of every program with its client library."""
PART_FAILURES = {f"antrea_{program}_part_failure_count" for program in ("agent", "controller")}
"""Names that antrea/outside/isolation.py makes of the program's."""
DECLARED = re.compile(r'Metric\(\s*"(antrea_\w+)",\s*(?:"[^"]*",\s*)?"(gauge|counter|histogram)"')
SEVERITIES = {"Critical": "critical", "Warning": "warning", "Info": "info"}


@cache
def declared() -> frozenset[str]:
    """Names of all series that our programs can have."""
    assert "antrea_{program}_part_failure_count" in (ROOT / "antrea/outside/isolation.py").read_text()
    names = set(PART_FAILURES)
    for path in (ROOT / "antrea").rglob("*.py"):
        for name, kind in DECLARED.findall(path.read_text()):
            names |= {name + suffix for suffix in HISTOGRAM} if kind == "histogram" else {name}
    return frozenset(names)


def test_alerts_and_panels_name_series_that_are_declared() -> None:
    assert len(declared()) > 60
    unknown = {name: series(expr) - declared() - OTHERS for name, expr in expressions().items()}
    assert len(unknown) > 50
    assert {name: names for name, names in unknown.items() if names} == {}


def test_a_misspelt_series_is_found() -> None:
    assert series("sum by (node) (rate(antrea_agent_pod_count[5m])) > 1 unless b") - declared() == {
        "antrea_agent_pod_count",
        "b",
    }
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        series("sum(up")


def test_each_alert_has_its_section_with_its_severity() -> None:
    sections = {
        heading: SEVERITIES[severity]
        for heading, severity in re.findall(r"^## (\w+)\n\n\*\*(\w+)\.\*\*", PAGE, re.MULTILINE)
    }
    assert {rule["alert"]: rule["labels"]["severity"] for rule in alerts()} == sections
    assert len(re.findall(r"^## ", PAGE, re.MULTILINE)) == len(sections)
    assert [rule["alert"] for rule in alerts()] == list(sections)


def test_each_alert_says_what_happened_and_where_it_is_explained() -> None:
    for rule in alerts():
        notes = rule["annotations"]
        assert notes["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert notes["summary"].endswith(".")
        assert notes["description"].endswith(".")
    assert max(Counter(rule["alert"] for rule in alerts()).values()) == 1


def test_dashboards_have_names_of_their_own_and_show_every_component() -> None:
    assert {path.stem for path in DASHBOARDS.glob("*.json")} == {"agents", "controller", "policies", "switch"}
    assert len(panels()) > 40


def test_the_scrape_example_has_the_jobs_and_labels_that_rules_use() -> None:
    config = yaml.safe_load((ROOT / "examples/prometheus/prometheus.yaml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    used = {name for expr in expressions().values() for name in re.findall(r'job="([\w-]+)"', expr)}
    assert jobs.keys() == used
    for name, job in jobs.items():
        keep, node = job["relabel_configs"]
        assert (keep["regex"], node["target_label"]) == (f"{name};api", "node")
    roles = list(yaml.safe_load_all((ROOT / "examples/prometheus/rbac.yaml").read_text()))
    rules = {role["kind"]: role["rules"] for role in roles if "rules" in role}
    assert rules["ClusterRole"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
