"""The tool that applies a ConfigMap again, and the command that is printed for it."""

from __future__ import annotations

from antrea.antctl.config_owner import config_owner


def test_antctl_quotes_the_name_of_a_release_in_a_command() -> None:
    owner = config_owner({"annotations": {"meta.helm.sh/release-name": "a; reboot #"}})
    assert owner
    assert owner.change("kube-system", "FILE") == (
        "helm -n kube-system upgrade 'a; reboot #' CHART --reuse-values -f FILE"
    )
