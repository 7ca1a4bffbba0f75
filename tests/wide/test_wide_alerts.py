"""promtool, of Prometheus itself, accepts the alerts and the scrape example; an alert fires as its section says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_rules import RULES

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not shutil.which("promtool"), reason="needs apt-get install prometheus"),
]
NODE = '{job="antrea-agent", instance="192.0.2.1:10350", node="node-1"}'


def promtool(*words: str) -> str:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules() -> None:
    assert "19 rules found" in promtool("check", "rules", str(RULES))


def test_promtool_accepts_the_scrape_example(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "examples/prometheus/prometheus.yaml").read_text())
    config["rule_files"] = [str(RULES)]
    for name in ("token", "ca.crt"):
        (tmp_path / name).touch()
    for job in config["scrape_configs"]:
        job["authorization"]["credentials_file"] = str(tmp_path / "token")
        del job["kubernetes_sd_configs"]  # Debian builds Prometheus without it
        job["static_configs"] = [{"targets": ["192.0.2.1:10350"]}]
    job["tls_config"]["ca_file"] = str(tmp_path / "ca.crt")
    (tmp_path / "prometheus.yaml").write_text(json.dumps(config))
    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yaml"))


@pytest.mark.parametrize(
    ("alert", "series", "when"),
    [
        ("AntreaAgentDown", {f"up{NODE}": "0x20"}, "6m"),
        ("AntreaSwitchDown", {f"up{NODE}": "1x20"}, "3m"),
        ("AntreaNodeWithoutMajority", {f"antrea_agent_member_quorum{NODE}": "0x20"}, "3m"),
        ("AntreaControllerDown", {f"up{NODE}": "1x20"}, "6m"),
    ],
)
def test_an_alert_fires(alert: str, series: dict[str, str], when: str, tmp_path: Path) -> None:
    well = {"up": "1x20", "antrea_agent_ovs_total_flow_count": "90x20", "antrea_agent_member_quorum": "1x20"}
    healthy = {f"{name}{NODE}": values for name, values in well.items()}
    healthy['up{job="antrea-controller", instance="192.0.2.2:10349"}'] = "1x20"
    for fires, given in ((True, series), (False, healthy)):
        rows = [{"series": name, "values": values} for name, values in given.items()]
        case = {
            "interval": "1m",
            "input_series": rows,
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                    "eval_time": when,
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
            ],
        }
        file = tmp_path / f"{fires}.yaml"
        file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [case]}))
        promtool("test", "rules", str(file))
