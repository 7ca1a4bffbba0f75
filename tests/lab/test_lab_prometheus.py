"""A Prometheus reads agents and the controller with the rights and the configuration of examples/prometheus, and evaluates our rules and dashboards."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from prometheus_rules import ABSENT_AT_FIRST, alerts, expressions, panels, series
from prometheus_server import EXAMPLES, running

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_server import Prometheus

    from lab.cluster import Lab

pytestmark = [
    pytest.mark.wide,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="needs apt-get install prometheus"),
]
BINDING = "clusterrolebinding/antrea-metrics"


@pytest.fixture(scope="module")
def prometheus(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running(lab, tmp_path_factory.mktemp("prometheus")) as found:
        yield found


def wait_scraped(lab: Lab, prometheus: Prometheus) -> None:
    """Wait until every agent and the controller are scraped, with the label of their Node."""
    nodes = {machine.name for machine in lab.topology.nodes}
    for job, count in (("antrea-agent", len(nodes)), ("antrea-controller", 1)):
        wait_for(f"targets of {job}", lambda: prometheus.is_up(job, count), seconds=60)  # noqa: B023
    labels = {one["labels"]["node"] for one in prometheus.targets() if one["labels"]["job"] == "antrea-agent"}
    assert labels == nodes


def test_prometheus_reads_every_program_with_the_rights_of_the_example(
    lab: Lab, prometheus: Prometheus
) -> None:
    wait_scraped(lab, prometheus)
    assert len(prometheus.targets()) == len(lab.topology.nodes) + 1
    lab.api.kubectl("delete", BINDING)
    agents = len(lab.topology.nodes)
    wait_for("targets that refuse", lambda: refused(prometheus) == agents + 1, seconds=120)
    lab.api.kubectl("apply", "-f", str(EXAMPLES / "rbac.yaml"))
    wait_scraped(lab, prometheus)


def refused(prometheus: Prometheus) -> int:
    return sum("403 Forbidden" in one["lastError"] for one in prometheus.targets())


def test_every_series_of_alerts_and_dashboards_is_stored(lab: Lab, prometheus: Prometheus) -> None:
    wait_scraped(lab, prometheus)
    wanted = {name for expression in expressions().values() for name in series(expression)}
    assert len(wanted) > 50

    def missing() -> set[str]:
        stored = {one["metric"]["__name__"] for one in prometheus.values('{job=~"antrea-.+"}')}
        return wanted - stored - ABSENT_AT_FIRST.keys()

    left = missing()
    # a series without a sample yet comes with the first of them
    wait_for(f"series: {sorted(left)}", lambda: not missing(), seconds=60)


def test_prometheus_evaluates_every_rule_and_no_alert_fires_in_a_healthy_lab(
    lab: Lab, prometheus: Prometheus
) -> None:
    wait_scraped(lab, prometheus)

    def rules() -> list[dict[str, object]]:
        return [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]

    wait_for("evaluated rules", lambda: all(rule["health"] != "unknown" for rule in rules()), seconds=60)
    found = {rule["name"]: (rule["health"], rule.get("lastError", "")) for rule in rules()}
    assert found == {rule["alert"]: ("ok", "") for rule in alerts()}
    assert len(found) == len(alerts()) == 19
    assert [one for one in prometheus.get("alerts")["alerts"] if one["state"] == "firing"] == []


def test_prometheus_answers_every_line_of_every_panel(lab: Lab, prometheus: Prometheus) -> None:
    """With values, unless the series are those that exist after an event only; `$node` is all Nodes, as Grafana fills it in."""
    wait_scraped(lab, prometheus)

    def without_values() -> set[str]:
        return {
            name
            for name, expression in panels().items()
            if not series(expression) & ABSENT_AT_FIRST.keys()
            and not prometheus.values(expression.replace("$node", ".*").replace("$__rate_interval", "1m"))
        }

    left = without_values()
    wait_for(f"values of panels: {sorted(left)}", lambda: not without_values(), seconds=120)
