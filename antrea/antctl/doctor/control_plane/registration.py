"""Registrations in kube-apiserver: the APIs and webhooks that the controller serves, and the kinds of crd.antrea.io."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.doctor.control_plane.cluster_state import CONTROLLER, name_of
from antrea.antctl.doctor.control_plane.release import create
from antrea.antctl.doctor.control_plane.rollout import condition
from antrea.antctl.doctor.state import Finding
from antrea.apis.network_policy_api.part import GROUP as POLICY_GROUP
from antrea.apis.shown import one_line
from antrea.decoding import decode_base64
from antrea.errors import Invalid
from antrea.features.registry.crds import ADMIN_CRDS, CRDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState

API_SERVICES: Final = "api-services"
WEBHOOKS: Final = "webhooks"
DEFINITIONS: Final = "definitions"
POLICY_DEFINITIONS: Final = "policy-definitions"
AGENT_CONF: Final = "antrea-agent.conf"
CONTROLLER_CONF: Final = "antrea-controller.conf"
CONFIG_MAP: Final = "config-map"
EXPECTED_APIS: Final = (
    "v1alpha1.stats.antrea.io",
    "v1beta1.system.antrea.io",
    "v1beta2.controlplane.antrea.io",
)
EXPECTED_WEBHOOKS: Final = ("crdmutator.antrea.io", "crdvalidator.antrea.io")
GROUP: Final = "crd.antrea.io"
CONTROLLER_PORT: Final = "controller-port"
TIMEOUTS: Final = (
    "deadline exceeded",
    "Timeout exceeded",
    "i/o timeout",
    "no route to host",
    "TLS handshake timeout",
)
"""Words of kube-apiserver when no packet comes back from an aggregated API."""


def configuration(state: ClusterState) -> Iterator[Finding]:
    """Yield the configuration itself if it is missing: programs that run keep theirs, and new Pods wait for it."""
    if not state.config:
        text = "ConfigMap antrea-config is missing: Pods of the controller and of agents cannot start"
        yield Finding("", "error", CONFIG_MAP, text, create(state, "antrea.yml"))


def api_services(state: ClusterState) -> Iterator[Finding]:
    """Yield aggregated APIs that are not registered, or that kube-apiserver cannot reach."""
    items = {name_of(item): item for item in state.api_services or ()}
    yield from _closed_port(state, items)
    for name in EXPECTED_APIS:
        if name not in items:
            text = f"APIService {name} is missing: kubectl and antctl cannot read that API"
            yield Finding("", "error", API_SERVICES, text, create(state, "antrea.yml"))
            continue
        available = condition(items[name], "Available")
        if available.get("status") == "True":
            continue
        why = one_line(available.get("message") or "kube-apiserver has not checked it")
        text = f"APIService {name} is not available: {why}"
        if "is not present" in why:
            yield Finding("", "error", API_SERVICES, text, create(state, "antrea.yml"))
        elif is_foreign(state, items[name]["spec"].get("caBundle", "")):
            text = f"{text}; its caBundle is not the certificate authority in ConfigMap antrea-ca"
            yield Finding("", "error", API_SERVICES, text, publish(state))
        else:
            yield Finding("", "error", API_SERVICES, text, f"kubectl describe apiservice {name}")


def _closed_port(state: ClusterState, items: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the controller's port, if kube-apiserver gets no packet back from it."""
    info = state.controller_info or {}
    node, port = info.get("nodeRef", {}).get("name", ""), info.get("apiPort", 10349)
    messages = (str(condition(item, "Available").get("message", "")) for item in items.values())
    if any(word in message for message in messages for word in TIMEOUTS):
        text = f"kube-apiserver gets no answer from port {port} of Node {node}, as if a firewall dropped its packets"
        yield Finding(
            node, "error", CONTROLLER_PORT, text, f"iptables -I INPUT -p tcp --dport {port} -j ACCEPT"
        )


def webhooks(state: ClusterState) -> Iterator[Finding]:
    """Yield webhook configurations that are missing, or whose calls fail since they trust another certificate authority."""
    for name in EXPECTED_WEBHOOKS:
        item = (state.webhooks or {}).get(name)
        if item is None:
            text = f"webhook configuration {name} is missing: objects of {GROUP} are stored without being checked"
            yield Finding("", "error", WEBHOOKS, text, create(state, "antrea.yml"))
            continue
        foreign = [
            hook["name"]
            for hook in item.get("webhooks", ())
            if is_foreign(state, hook["clientConfig"].get("caBundle", ""))
        ]
        if foreign:
            text = (
                f"webhook configuration {name}: {len(foreign)} webhooks, such as {foreign[0]}, have another certificate "
                "authority than ConfigMap antrea-ca: their calls fail"
            )
            yield Finding("", "error", WEBHOOKS, text, publish(state))


def definitions(state: ClusterState) -> Iterator[Finding]:
    """Yield kinds of crd.antrea.io that kube-apiserver does not serve."""
    expected = {
        f"{version.name}/{crd.plural}" for crd in CRDS if crd.group == GROUP for version in crd.versions
    }
    if missing := sorted(expected - (state.resources or frozenset())):
        names = sorted({f"{place.partition('/')[2]}.{GROUP}" for place in missing})
        text = f"kube-apiserver does not serve {', '.join(missing[:5])} of {GROUP}: CustomResourceDefinition {names[0]}"
        more = f" and {len(names) - 1} more are" if len(names) > 1 else " is"
        repair = create(state, "antrea-crds.yml")
        yield Finding("", "error", DEFINITIONS, f"{text}{more} missing or of another release", repair)


def enabled_gates(state: ClusterState, file: str) -> frozenset[str]:
    """Return the feature gates that a file of the ConfigMap turns on; none of one that is refused, which a condition of its program names."""
    from antrea.config.agent import AgentConfig  # noqa: PLC0415 (start-up time)
    from antrea.config.controller import ControllerConfig  # noqa: PLC0415
    from antrea.config.load import parse  # noqa: PLC0415
    from antrea.features.framework.config_validation import accept_agent, accept_controller  # noqa: PLC0415

    text = (state.config or {}).get(file, "")
    try:
        if file == AGENT_CONF:
            return accept_agent(parse(AgentConfig, text).config).names
        return accept_controller(parse(ControllerConfig, text).config).names
    except Invalid:
        return frozenset()


def policy_definitions(state: ClusterState) -> Iterator[Finding]:
    """Yield kinds of the group POLICY_GROUP whose feature gate is on, and that kube-apiserver does not serve."""
    gates = enabled_gates(state, CONTROLLER_CONF)
    missing = sorted(
        f"{version.name}/{crd.plural}"
        for crd in ADMIN_CRDS
        if any(gate in gates for gate in crd.gates)
        for version in crd.versions
        if f"{version.name}/{crd.plural}" not in (state.policy_resources or ())
    )
    if missing:
        text = (
            f"kube-apiserver does not serve {', '.join(missing)} of {POLICY_GROUP}, whose feature gate is on: the "
            "CustomResourceDefinition is missing or of another release"
        )
        repair = create(state._replace(releases=()), "network-policy-api-crds.yml")
        yield Finding("", "error", POLICY_DEFINITIONS, text, repair)


def publish(state: ClusterState) -> str:
    """Return the command after which the controller publishes its certificate authority again."""
    return f"kubectl -n {state.namespace} rollout restart deployment/{CONTROLLER}"


def is_foreign(state: ClusterState, bundle: Any) -> bool:
    """Return whether a caBundle has no certificate of the authority that the controller publishes, if that can be read."""
    if not state.authority:
        return False
    try:
        text = decode_base64(str(bundle), "caBundle").decode(errors="replace")
    except Invalid:
        return True
    return not certificates_of(text) & certificates_of(state.authority)


def certificates_of(text: str) -> frozenset[str]:
    """Return the bodies of the certificates in a PEM file."""
    parts = text.split("-----BEGIN CERTIFICATE-----")[1:]
    return frozenset("".join(part.partition("-----END")[0].split()) for part in parts)
