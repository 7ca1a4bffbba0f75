"""kubectl creates good and bad objects in a real API server that asks our webhooks, while certificates come and go."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from antrea.errors import Unavailable
from antrea.features.network_policy.tier import DEFAULT_TIERS
from antrea.features.webhook_configuration import configurations
from antrea.features.webhooks import WEBHOOKS
from antrea.lab import cluster
from antrea.lab import control_plane as plane
from antrea.lab.process import wait_for
from antrea.outside import authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.lab.cluster import Lab

ROOT = Path(__file__).parents[2]
PROCESS = Path(__file__).with_name("admission_process.py")
PORT = 10449
NAMES = ("antrea", "antrea.kube-system.svc")
SECRET = "antrea-controller-tls"


class Running:
    """Our process beside the API server, and kubectl."""

    def __init__(self, lab: Lab, directory: Path, source: str, *gates: str) -> None:
        self.lab = lab
        self.log = directory / "process.log"
        config = plane.kubeconfig(lab.record)
        words = [sys.executable, str(PROCESS), str(config), str(PORT), str(directory), source, *gates]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                cluster.enter(lab, "control", words), stdout=out, stderr=out, cwd=ROOT
            )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def create(self, manifest: dict[str, Any] | str) -> str:
        """What kubectl says, on stdout or stderr."""
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        done = subprocess.run(
            self.lab.api.command(["create", "-f", "-"]),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return (done.stdout + done.stderr).strip()

    def answers(self) -> bool:
        """Whether a webhook decides: a Tier that nobody may create is refused by us."""
        said = self.create(tier("nobody", 255))
        return "tier nobody priority 255 is reserved" in said

    def wait(self) -> None:
        try:
            wait_for("our webhooks to decide", self.answers, seconds=40, step=0.3)
        except Unavailable as e:
            e.add_note(self.log.read_text()[-3000:])
            e.add_note(self.create(tier("nobody", 255)))
            raise


def tier(name: str, priority: int) -> dict[str, Any]:
    return crd("Tier", name, {"priority": priority})


def crd(kind: str, name: str, spec: dict[str, Any], version: str = "v1beta1") -> dict[str, Any]:
    return {
        "apiVersion": f"crd.antrea.io/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def policy(name: str, tier: str, **rule: Any) -> dict[str, Any]:
    applied = [{"podSelector": {"matchLabels": {"app": "web"}}}]
    spec = {"priority": 5, "tier": tier, "appliedTo": applied, "ingress": [{"action": "Drop", **rule}]}
    return crd("ClusterNetworkPolicy", name, spec)


@pytest.fixture(scope="module")
def prepared(control_plane: Lab) -> Lab:
    """Our CRDs, the Service that leads to our process, and the webhook configurations."""
    api = control_plane.api
    for file in sorted((ROOT / "build/charts/antrea/crds").glob("*.yaml")):
        api.apply(file.read_text())
    address = plane.endpoint(control_plane.topology)
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "antrea", "namespace": "kube-system"},
            "spec": {"ports": [{"port": 443, "targetPort": PORT, "protocol": "TCP"}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "antrea-test",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "antrea"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "", "port": PORT, "protocol": "TCP"}],
            "endpoints": [{"addresses": [address]}],
        },
        *configurations(WEBHOOKS, "kube-system"),
    ]
    api.apply(yaml.safe_dump_all(objects))
    return control_plane


@pytest.fixture
def ours(prepared: Lab, tmp_path: Path) -> Iterator[Running]:
    running = Running(prepared, tmp_path, "self-signed")
    try:
        running.wait()
        yield running
    finally:
        running.stop()


def ca_published(lab: Lab) -> str:
    """The CA of the ConfigMap, if all who call us hold the same; else nothing."""
    config_map = json.loads(lab.api.kubectl("-n", "kube-system", "get", "cm", "antrea-ca", "-o", "json"))
    pem: str = config_map["data"]["ca.crt"]
    shown = lab.api.kubectl(
        "get", "validatingwebhookconfigurations,mutatingwebhookconfigurations,crd",
        "-l", "served-by=antrea-controller", "-o", "json",
    )  # fmt: skip
    bundles = set()
    for item in json.loads(shown)["items"]:
        hooks = item.get("webhooks") or [item["spec"]["conversion"]["webhook"]]
        bundles |= {hook["clientConfig"].get("caBundle", "") for hook in hooks}
    return pem if bundles == {base64.b64encode(pem.encode()).decode()} else ""


def test_kubectl_hears_which_field_must_change(ours: Running) -> None:
    said = {
        "tier": ours.create(policy("a", "no-such")),
        "port": ours.create(policy("b", "", ports=[{"protocol": "TCP", "port": 9, "endPort": 3}])),
        "pool": ours.create(crd("Egress", "c", {"appliedTo": {}, "egressIP": "10.1.1.1", "externalIPPool": "p"})),
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


def test_an_accepted_policy_gets_names_and_the_default_tier_and_says_what_is_not_built(ours: Running) -> None:
    said = ours.create(policy("named", ""))
    shown = json.loads(ours.lab.api.kubectl("get", "acnp", "named", "-o", "json"))["spec"]
    ours.lab.api.kubectl("delete", "acnp", "named")
    warning = "Warning: the feature AntreaPolicy is not built yet: the object is kept, but nothing acts on it"
    assert said.splitlines() == ["clusternetworkpolicy.crd.antrea.io/named created", warning]
    assert (shown["tier"], shown["ingress"][0]["name"][:13]) == ("application", "ingress-drop-")


def test_a_policy_may_come_with_its_tier_in_one_file(ours: Running) -> None:
    both = yaml.safe_dump_all([tier("together", 77), policy("with-tier", "together")])
    said = ours.create(both)
    ours.lab.api.kubectl("delete", "acnp", "with-tier")
    wait_for("the tier to be free", lambda: _deleted(ours, "together"), seconds=10)
    assert "tier.crd.antrea.io/together created" in said
    assert "clusternetworkpolicy.crd.antrea.io/with-tier created" in said


def _deleted(ours: Running, name: str) -> bool:
    with contextlib.suppress(Unavailable):
        ours.lab.api.kubectl("delete", "tier", name)
        return True
    return False


def test_the_default_tiers_are_there_and_stay(ours: Running) -> None:
    def tiers() -> dict[str, int]:
        items = ours.lab.api.items("/apis/crd.antrea.io/v1beta1/tiers")
        return {item["metadata"]["name"]: item["spec"]["priority"] for item in items}

    wanted = {tier.metadata.name: tier.spec.priority for tier in DEFAULT_TIERS}
    wait_for("the default Tiers", lambda: tiers() == wanted, seconds=15)
    with pytest.raises(Unavailable, match=r"metadata\.name: cannot delete reserved tier baseline"):
        ours.lab.api.kubectl("delete", "tier", "baseline")


def test_a_gate_that_is_off_is_named(ours: Running) -> None:
    info = {"gateway": "10.9.0.1", "prefixLength": 24}
    said = ours.create(crd("IPPool", "p", {"ipRanges": [{"cidr": "10.9.0.0/28"}], "subnetInfo": info}))
    assert said.endswith(
        'admission webhook "ippoolvalidator.antrea.io" denied the request: kind: ippools need the feature gate'
        " AntreaIPAM, which is off (the feature is not built yet): see featureGates"
    )


def test_an_old_version_is_converted(ours: Running) -> None:
    spec = {"ipRanges": [{"start": "10.44.0.2", "end": "10.44.0.9"}], "nodeSelector": {}}
    said = ours.create(crd("ExternalIPPool", "old", spec, version="v1alpha2"))
    new = ours.lab.api.get("/apis/crd.antrea.io/v1beta1/externalippools/old")
    old = ours.lab.api.get("/apis/crd.antrea.io/v1alpha2/externalippools/old")
    ours.lab.api.kubectl("delete", "externalippool", "old")
    assert "externalippool.crd.antrea.io/old created" in said
    assert (new["spec"], old["spec"]) == (spec, spec)


def test_only_who_may_read_the_secret_may_have_it_sent(prepared: Lab, tmp_path: Path) -> None:
    running = Running(prepared, tmp_path, "self-signed", "PacketCapture")
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
    try:
        running.wait()
        prepared.api.apply(head + role)
        prepared.api.kubectl(
            "create", "clusterrolebinding", "captures", "--clusterrole=captures", "--user=eve"
        )
        done = subprocess.run(
            prepared.api.command(["create", "--as=eve", "-f", "-"]),
            input=json.dumps(capture), capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        said = running.create(capture)
    finally:
        running.stop()
    assert done.stderr.strip().endswith(
        'denied the request: spec.fileServer: user "eve" is not authorized to get Secret'
        " kube-system/antrea-packetcapture-fileserver-auth used to authenticate to the file server"
    )
    assert "packetcapture.crd.antrea.io/c created" in said


def test_a_deleted_secret_is_made_anew_and_webhooks_go_on(ours: Running) -> None:
    api = ours.lab.api
    before = wait_for("the CA everywhere", lambda: ca_published(ours.lab), seconds=20)
    api.kubectl("-n", "kube-system", "delete", "secret", SECRET)

    # from here on every single question must be decided, also while certificates change
    def rotated() -> bool:
        assert ours.answers()
        return (now := ca_published(ours.lab)) not in ("", before) and now.count("BEGIN CERTIFICATE") == 2

    wait_for("a new CA everywhere", rotated, seconds=40, step=0.2)
    made = json.loads(api.kubectl("-n", "kube-system", "get", "secret", SECRET, "-o", "json"))
    assert base64.b64decode(made["data"]["tls.crt"]).decode() == ca_published(ours.lab)
    assert ours.answers()
    assert ours.process.poll() is None


def test_a_ca_that_somebody_wrote_over_ours_is_put_right(ours: Running) -> None:
    name = "validatingwebhookconfiguration/crdvalidator.antrea.io"
    before = wait_for("the CA everywhere", lambda: ca_published(ours.lab), seconds=20)
    ours.lab.api.kubectl(
        "patch", name, "--type=json",
        "-p", '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]',
    )  # fmt: skip
    assert wait_for("the CA everywhere again", lambda: ca_published(ours.lab), seconds=20) == before


def write_files(directory: Path) -> str:
    """What a user provides: certificate, key and CA; returns the CA."""
    pair = authority.make(NAMES, ("127.0.0.1",))
    leaf, mark, ca = pair.certificate_pem.partition("-----END CERTIFICATE-----\n")
    for name, text in (("ca.crt", ca), ("tls.crt", leaf + mark), ("tls.key", pair.key_pem)):
        fresh = directory / f".{name}"
        fresh.write_text(text)
        fresh.replace(directory / name)
    return ca


def test_files_of_the_user_are_served_and_followed(prepared: Lab, tmp_path: Path) -> None:
    running = Running(prepared, tmp_path, "provided")
    try:
        first = write_files(tmp_path)
        running.wait()
        assert wait_for("its CA everywhere", lambda: ca_published(prepared), seconds=20) == first
        second = write_files(tmp_path)
        wait_for("the new CA everywhere", lambda: ca_published(prepared) == second, seconds=20)
        running.wait()
        assert running.process.poll() is None
    finally:
        running.stop()
