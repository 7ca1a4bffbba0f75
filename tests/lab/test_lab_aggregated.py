"""kubectl and agents read our aggregated APIs through a real API server, and strangers read nothing."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from api_client import TABLE, ApiClient

from lab import control_plane as plane
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from controller_process import ControllerProcess

CP = "/apis/controlplane.antrea.io/v1beta2"


@pytest.fixture(scope="module")
def client(controller: ControllerProcess) -> Iterator[ApiClient]:
    with contextlib.closing(ApiClient(controller.lab)) as opened:
        yield opened


def test_kubectl_shows_the_controller_about_itself(controller: ControllerProcess) -> None:
    assert controller.lab.api.kubectl("get", "controllerinfos").splitlines() == [
        "NAME                CREATED AT",
        "antrea-controller   0001-01-01T00:00:00Z",
    ]
    info = json.loads(controller.lab.api.kubectl("get", "controllerinfo", "antrea-controller", "-o", "json"))
    assert info["podRef"] == {"kind": "Pod", "namespace": "kube-system", "name": "antrea-controller-0"}
    assert info["nodeRef"] == {"kind": "Node", "name": "n1"}
    assert [(c["type"], c["status"]) for c in info["controllerConditions"]] == [("ControllerHealthy", "True")]
    saved = json.loads(controller.lab.api.kubectl("get", "aci", "antrea-controller", "-o", "json"))
    assert saved["version"] == info["version"]
    assert saved["apiPort"] == 10349


def test_kubectl_lists_every_resource_and_explains_it(
    controller: ControllerProcess, client: ApiClient
) -> None:
    kubectl = controller.lab.api.kubectl

    def indexed() -> bool:
        found = client.call("GET", "/openapi/v3")
        return found.status == 200 and CP.lstrip("/") in found.body["paths"]

    wait_for("the API server to have read our OpenAPI index", indexed, seconds=90, step=0.5)
    listed = kubectl("api-resources", "--api-group=controlplane.antrea.io", "--no-headers", "-o", "name")
    assert "networkpolicies.controlplane.antrea.io" in listed.split()
    said = kubectl("get", "addressgroups,appliedtogroups,networkpolicystats,nodelatencystats", "-A")
    assert said.strip() in ("", "No resources found")
    explained = kubectl(
        "explain", "networkpolicies.rules.from", "--api-version=controlplane.antrea.io/v1beta2"
    )
    assert "addressGroups\t<[]string>" in explained
    assert "GROUP:      controlplane.antrea.io" in explained
    port = kubectl(
        "explain", "networkpolicies.rules.services.port", "--api-version=controlplane.antrea.io/v1beta2"
    )
    assert "FIELD: port <IntOrString>" in port


def test_the_api_server_has_our_discovery_in_its_own(client: ApiClient) -> None:
    for group in ("controlplane.antrea.io", "stats.antrea.io", "system.antrea.io"):
        assert client.call("GET", f"/apis/{group}").status == 200
    accept = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
    found = client.call("GET", "/apis", accept=accept).body
    versions = {item["metadata"]["name"]: item["versions"] for item in found["items"]}
    assert versions["stats.antrea.io"][0]["freshness"] == "Current"
    rule = "io.antrea.antrea.pkg.apis.controlplane.v1beta2.NetworkPolicyRule"

    def merged() -> bool:
        return rule in client.call("GET", "/openapi/v2").body["definitions"]

    # the API server asks again in growing pauses after a first try that came too early
    wait_for("the API server to have our OpenAPI", merged, seconds=90, step=1)
    # a definition of Kubernetes that differs from the API server's own is shown beside it under such a name
    names = client.call("GET", "/openapi/v2").body["definitions"]
    assert [name for name in names if re.search(r"_v\d+$", name)] == []


def test_a_protobuf_only_client_is_told_what_we_speak(client: ApiClient) -> None:
    answer = client.call("GET", f"{CP}/addressgroups", accept="application/vnd.kubernetes.protobuf")
    assert (answer.status, answer.body["reason"]) == (406, "NotAcceptable")


def test_selectors_are_understood_or_refused(client: ApiClient) -> None:
    for query in ("fieldSelector=nodeName%3Dn1", "fieldSelector=metadata.name%3Dx", "labelSelector=a%21%3Db"):
        assert client.call("GET", f"{CP}/networkpolicies?{query}").status == 200
    answer = client.call("GET", f"{CP}/networkpolicies?fieldSelector=spec.x%3D1")
    assert (answer.status, answer.body["message"]) == (400, "field label not supported: spec.x")


def test_node_latency_stats_come_and_go(client: ApiClient) -> None:
    path = "/apis/stats.antrea.io/v1alpha1/nodelatencystats"
    target = {"targetIP": "10.0.0.1", "lastMeasuredRTTNanoseconds": 5_837_000}
    posted: dict[str, Any] = {
        "apiVersion": "stats.antrea.io/v1alpha1",
        "kind": "NodeLatencyStats",
        "metadata": {"name": "n1"},
        "peerNodeLatencyStats": [{"nodeName": "n2", "targetIPLatencyStats": [target]}],
    }
    assert client.call("POST", path, posted).status == 201
    table = client.call("GET", path, accept=TABLE).body
    assert [row["cells"] for row in table["rows"]] == [["n1", 1, "5.837ms", "5.837ms"]]
    assert client.call("DELETE", f"{path}/n1").body["status"] == "Success"
    assert client.call("GET", f"{path}/n1").status == 404


def test_agents_read_with_their_own_token_and_nothing_else(controller: ControllerProcess) -> None:
    api = controller.lab.api
    api.kubectl("create", "serviceaccount", "reader", "-n", "default")
    api.kubectl(
        "create", "clusterrole", "reader", "--verb=list", "--resource=addressgroups.controlplane.antrea.io"
    )
    api.kubectl(
        "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:reader"
    )
    token = api.kubectl("create", "token", "reader", "-n", "default").strip()
    bearer = ("-H", f"Authorization: Bearer {token}")

    def kind() -> bool:
        # kube-apiserver, which we ask, has not heard of a new right at once
        listed = json.loads(controller.curl(*bearer, path=f"{CP}/addressgroups"))
        return bool(listed["kind"] == "AddressGroupList")

    wait_for("the right", kind, seconds=60)
    denied = json.loads(controller.curl(*bearer, path=f"{CP}/networkpolicies"))
    assert denied["message"] == (
        'networkpolicies.controlplane.antrea.io is forbidden: User "system:serviceaccount:default:reader" cannot list'
        ' resource "networkpolicies" in API group "controlplane.antrea.io" at the cluster scope'
    )
    own = controller.token_file.read_text()
    assert json.loads(controller.curl("-H", f"Authorization: Bearer {own}", path="/version"))["gitVersion"]


FORGED = ("-H", "X-Remote-User: admin", "-H", "X-Remote-Group: system:masters")


def certificate(controller: ControllerProcess, stem: str) -> tuple[str, ...]:
    files = plane.pki(controller.lab.record)
    return ("--cert", f"{files}/{stem}.crt", "--key", f"{files}/{stem}.key")


def issued(controller: ControllerProcess, ca: str, name: str, stem: str, days: str = "1") -> tuple[str, ...]:
    """A certificate of that CA of the lab, with this common name."""
    files = plane.pki(controller.lab.record)
    request = controller.directory / stem
    words = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", f"/CN={name}", "-keyout", f"{request}.key", "-out", f"{request}.csr"]
    subprocess.run(words, capture_output=True, check=True)
    sign = ["openssl", "x509", "-req", "-in", f"{request}.csr", "-CA", f"{files}/{ca}.crt"]
    sign += ["-CAkey", f"{files}/{ca}.key", "-CAcreateserial", "-days", days, "-out", f"{request}.crt"]
    subprocess.run(sign, capture_output=True, check=True)
    return ("--cert", f"{request}.crt", "--key", f"{request}.key")


def status_of(text: str) -> tuple[int, str]:
    found = json.loads(text)
    return found.get("code", 200), found.get("message", found["kind"])


def test_the_front_proxys_certificate_speaks_for_users(controller: ControllerProcess) -> None:
    proxy = certificate(controller, "front-proxy-client")
    assert status_of(controller.curl(*proxy, *FORGED, path=f"{CP}/addressgroups")) == (
        200,
        "AddressGroupList",
    )
    plain = ("-H", "X-Remote-User: jane", "-H", "X-Remote-Group: system:authenticated")
    code, message = status_of(controller.curl(*proxy, *plain, path=f"{CP}/addressgroups"))
    assert (code, 'User "jane" cannot list' in message) == (403, True)


def test_forged_headers_and_a_client_certificate_with_the_proxys_name_are_worth_nothing(
    controller: ControllerProcess,
) -> None:
    path = f"{CP}/addressgroups"
    code, message = status_of(controller.curl(*FORGED, path=path))
    assert (code, 'User "system:anonymous" cannot list' in message) == (403, True)
    impostor = issued(controller, "ca", "front-proxy-client", "impostor")
    code, message = status_of(controller.curl(*impostor, *FORGED, path=path))
    assert (code, 'User "front-proxy-client" cannot list' in message) == (403, True)
    # of the right CA, but not the name that the configuration allows
    stranger = issued(controller, "front-proxy-ca", "stranger", "stranger")
    assert status_of(controller.curl(*stranger, *FORGED, path=path)) == (401, "Unauthorized")


def test_a_client_certificate_of_the_cluster_is_its_user(controller: ControllerProcess) -> None:
    admin = certificate(controller, "admin")
    assert status_of(controller.curl(*admin, path=f"{CP}/addressgroups")) == (200, "AddressGroupList")
    assert status_of(controller.curl("-H", "Authorization: Bearer x", path=f"{CP}/addressgroups")) == (
        401,
        "Unauthorized",
    )


def test_expired_certificates_large_bodies_and_nonsense_versions_harm_nobody(
    controller: ControllerProcess, client: ApiClient, tmp_path: Path
) -> None:
    past = issued(controller, "ca", "kubernetes-admin", "expired", days="-1")
    assert controller.curl(*past, path="/healthz") == ""
    admin = certificate(controller, "admin")
    own = ("-H", f"Authorization: Bearer {controller.token_file.read_text()}")
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(50 << 20)
    said = controller.curl(*own, "-X", "POST", "--data-binary", f"@{big}", path=f"{CP}/nodestatssummaries")
    assert status_of(said) == (413, "Request entity too large: limit is 3145728")
    query = "watch=true&resourceVersion=nonsense&timeoutSeconds=1"
    events = controller.curl(*admin, path=f"{CP}/networkpolicies?{query}").splitlines()
    assert [json.loads(event)["type"] for event in events] == ["BOOKMARK"]
    assert client.call("GET", f"{CP}/networkpolicies").status == 200
