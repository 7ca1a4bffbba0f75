"""kubectl creates good and bad objects in a real API server that asks our webhooks."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest
import yaml
from admission_object import crd, create, policy, tier

from antrea.errors import Unavailable
from antrea.features.network_policy.tier import DEFAULT_TIERS
from lab.process import wait_for

if TYPE_CHECKING:
    from controller_process import ControllerProcess

    from lab.cluster import Lab


def test_kubectl_hears_which_field_must_change(controller: ControllerProcess) -> None:
    said = {
        "tier": create(controller.lab, policy("a", "no-such")),
        "port": create(controller.lab, policy("b", "", ports=[{"protocol": "TCP", "port": 9, "endPort": 3}])),
        "pool": create(controller.lab, crd("Egress", "c", {"appliedTo": {}, "egressIP": "10.1.1.1", "externalIPPool": "p"})),
    }  # fmt: skip

    def denied(webhook: str, why: str) -> str:
        return f'Error from server: error when creating "STDIN": admission webhook "{webhook}" denied the request: {why}'

    assert said == {
        "tier": denied("acnpvalidator.antrea.io", "spec.tier: tier no-such does not exist"),
        "port": denied(
            "acnpvalidator.antrea.io",
            "spec.ingress[0].ports[0].endPort: `endPort` should be greater than or equal to `port`",
        ),
        "pool": denied("egressvalidator.antrea.io", "spec.externalIPPool: ExternalIPPool p does not exist"),
    }


def test_an_accepted_policy_gets_names_and_the_default_tier_and_says_what_is_not_built(
    controller: ControllerProcess,
) -> None:
    said = create(controller.lab, policy("named", "", protocols=[{"igmp": {"igmpType": 17}}]))
    shown = json.loads(controller.lab.api.kubectl("get", "acnp", "named", "-o", "json"))["spec"]
    controller.lab.api.kubectl("delete", "acnp", "named")
    warning = "Warning: spec.ingress[0].protocols[0].igmp is not built yet: it matches nothing"
    assert said.splitlines() == ["clusternetworkpolicy.crd.antrea.io/named created", warning]
    assert (shown["tier"], shown["ingress"][0]["name"][:13]) == ("application", "ingress-drop-")


def test_a_policy_may_come_with_its_tier_in_one_file(controller: ControllerProcess) -> None:
    both = yaml.safe_dump_all([tier("together", 77), policy("with-tier", "together")])
    said = create(controller.lab, both)
    controller.lab.api.kubectl("delete", "acnp", "with-tier")
    wait_for("the tier to be free", lambda: _deleted(controller.lab, "together"), seconds=60)
    assert "tier.crd.antrea.io/together created" in said
    assert "clusternetworkpolicy.crd.antrea.io/with-tier created" in said


def _said_yes(lab: Lab, *words: str) -> bool:
    """kubectl fails where it says no."""
    with contextlib.suppress(Unavailable):
        return lab.api.kubectl(*words).strip() == "yes"
    return False


def _deleted(lab: Lab, name: str) -> bool:
    with contextlib.suppress(Unavailable):
        lab.api.kubectl("delete", "tier", name)
        return True
    return False


def test_the_default_tiers_are_there_and_stay(controller: ControllerProcess) -> None:
    def tiers() -> dict[str, int]:
        items = controller.lab.api.items("/apis/crd.antrea.io/v1beta1/tiers")
        return {item["metadata"]["name"]: item["spec"]["priority"] for item in items}

    wanted = {tier.metadata.name: tier.spec.priority for tier in DEFAULT_TIERS}
    wait_for("the default Tiers", lambda: tiers() == wanted, seconds=60)
    with pytest.raises(Unavailable, match=r"metadata\.name: cannot delete reserved tier baseline"):
        controller.lab.api.kubectl("delete", "tier", "baseline")


def test_a_gate_that_is_off_is_named(controller: ControllerProcess) -> None:
    info = {"gateway": "10.9.0.1", "prefixLength": 24}
    said = create(
        controller.lab, crd("IPPool", "p", {"ipRanges": [{"cidr": "10.9.0.0/28"}], "subnetInfo": info})
    )
    assert said.endswith(
        'admission webhook "ippoolvalidator.antrea.io" denied the request: kind: ippools need the feature gate'
        " AntreaIPAM, which is off (the feature is not built yet): see featureGates"
    )


def test_an_old_version_is_converted(controller: ControllerProcess) -> None:
    spec = {"ipRanges": [{"start": "10.44.0.2", "end": "10.44.0.9"}], "nodeSelector": {}}
    said = create(controller.lab, crd("ExternalIPPool", "old", spec, version="v1alpha2"))
    new = controller.lab.api.get("/apis/crd.antrea.io/v1beta1/externalippools/old")
    old = controller.lab.api.get("/apis/crd.antrea.io/v1alpha2/externalippools/old")
    controller.lab.api.kubectl("delete", "externalippool", "old")
    assert "externalippool.crd.antrea.io/old created" in said
    assert (new["spec"], old["spec"]) == (spec, spec)


def test_only_who_may_read_the_secret_may_have_it_sent(controller: ControllerProcess) -> None:
    api = controller.lab.api
    capture = crd(
        "PacketCapture",
        "c",
        {
            "source": {"pod": {"namespace": "default", "name": "web"}},
            "captureConfig": {"firstN": {"number": 1}},
            "fileServer": {"url": "sftp://192.0.2.1:22/up"},
        },
        version="v1alpha1",
    )
    role = "rules:\n- {apiGroups: [crd.antrea.io], resources: ['*'], verbs: ['*']}\n"
    head = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: captures}\n"
    api.apply(head + role)
    api.kubectl("create", "clusterrolebinding", "captures", "--clusterrole=captures", "--user=eve")
    may = ("auth", "can-i", "create", "packetcaptures.crd.antrea.io", "--as=eve")
    wait_for("her right", lambda: _said_yes(controller.lab, *may), seconds=60)
    denied, said = create(controller.lab, capture, "--as=eve"), create(controller.lab, capture)
    api.kubectl("delete", "packetcapture", "c")
    assert denied.endswith(
        'denied the request: spec.fileServer: user "eve" is not authorized to get Secret'
        " kube-system/antrea-packetcapture-fileserver-auth used to authenticate to the file server"
    )
    assert "packetcapture.crd.antrea.io/c created" in said
