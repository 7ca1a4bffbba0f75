"""Where the objects for an explanation come from: kube-apiserver, or the file clusterinfo of a support bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.failure import Failure
from antrea.antctl.remote import antrea_namespace
from antrea.antctl.request import ErrorResponse, ask
from antrea.antctl.supportbundle.cluster import listed
from antrea.decoding import guarded
from antrea.errors import Invalid
from antrea.explain.guard import DEFAULT_PORTS, GuardPorts
from antrea.explain.objects import AGENT_GATES, GATES, KINDS, Objects, objects
from antrea.explain.path import NodeLinks
from antrea.explain.world import Proxy, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from antrea.antctl.request import Server
    from antrea.config.agent import AgentConfig

FILE = "clusterinfo"
CONFIG_MAP, CONFIG_FILE = "antrea-config", "antrea-agent.conf"
CONTROLLER_FILE = "antrea-controller.conf"
NEEDED = frozenset({"pods", "namespaces", "networkpolicies.networking.k8s.io"})
"""Without these there is no answer."""


class Settings(NamedTuple):
    """Settings from the agents' configuration."""

    proxy: Proxy | None = None
    """None: AntreaProxy is off."""
    gates: frozenset[str] = frozenset()
    """Feature gates that are on in agents."""
    ports: GuardPorts = DEFAULT_PORTS
    pods_keep_addresses: bool = False
    """noSNAT."""
    links: NodeLinks = NodeLinks()


class Source(NamedTuple):
    """Objects, what could not be had, each in a sentence, and settings."""

    objects: Objects
    lacks: tuple[str, ...] = ()
    settings: Settings = Settings()
    unenforced: frozenset[str] = frozenset()
    """Fields of `Objects` whose kinds are not enforced, since their gate is off."""

    def world(self, objects: Objects | None = None) -> World:
        """Return the evaluator's input for these objects with the cluster's settings."""
        return World(
            self.objects if objects is None else objects,
            *self.settings[:3],
            pods_keep_addresses=self.settings.pods_keep_addresses,
            links=self.settings.links,
        )


def of_cluster(kubernetes: Server) -> Source:
    """Read all kinds from kube-apiserver. Raises Failure if a kind may not be listed, Invalid for an object that cannot be read."""
    items: dict[str, list[dict[str, Any]]] = {}
    lacks = []
    for kind in KINDS:
        try:
            items[kind.field] = list(listed(kubernetes, kind.path))
        except ErrorResponse as error:
            if kind.field in AGENT_GATES and error.status in (401, 403):
                lacks.append(f"{kind.title}: {error.message}: none is taken into account")
                continue
            if error.status != 404 or kind.title in NEEDED:
                raise ErrorResponse(f"{kind.title}: {error.message}", error.status) from error
            lacks.append(f"the cluster does not know {kind.title}: none is taken into account")
    config, lack = None, ""
    try:
        path = f"/api/v1/namespaces/{antrea_namespace(kubernetes)}/configmaps/{CONFIG_MAP}"
        config = ask(kubernetes, path, {})
    except Failure as error:
        lack = error.message
    return _source(items, lacks, config, lack)


def _source(
    items: dict[str, list[dict[str, Any]]],
    lacks: list[str],
    config: Mapping[str, Any] | None,
    lack: str,
) -> Source:
    """`lacks` begin with the title of a kind; of kinds whose gate is off nothing is lacking, and nothing counts."""
    settings, said = _settings(config, lack)
    gates = _controller_gates(config)
    off = {field: f"{gate} is off in {CONTROLLER_FILE}" for field, gate in GATES.items() if gate not in gates}
    unenforced = frozenset(off)
    off |= {
        field: f"{gate} is off in {CONFIG_FILE}"
        for field, gate in AGENT_GATES.items()
        if gate not in settings.gates
    }
    for kind in KINDS:
        if kind.field in off:
            lacks = [lack for lack in lacks if kind.title not in lack]
            if items.pop(kind.field, None):
                why = f"the feature gate {off[kind.field]}"
                lacks.append(f"{kind.title}: {why}: none is taken into account")
    return Source(objects(items), (*lacks, *said), settings, unenforced)


def _controller_gates(config_map: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the feature gates that are on in the controller; defaults where its configuration is missing or refused."""
    from antrea.config.controller import ControllerConfig  # noqa: PLC0415 (start-up time)
    from antrea.config.load import parse  # noqa: PLC0415
    from antrea.features.framework.config_validation import accept_controller  # noqa: PLC0415

    text = ((config_map or {}).get("data") or {}).get(CONTROLLER_FILE) or ""
    try:
        return accept_controller(parse(ControllerConfig, text).config).names
    except Invalid:
        return accept_controller(ControllerConfig()).names


def of_bundle(path: Path) -> Source:
    """Read a support bundle. Raises Failure for one that has too little, Invalid."""
    path = path / FILE if path.is_dir() else path
    try:
        sections = dict(_sections(path))
    except OSError as error:
        raise Failure(
            f"{path}: {error.strerror or error}: an explanation needs the file {FILE} of a bundle"
        ) from error
    missing = sorted(NEEDED - sections.keys())
    if missing:
        raise Failure(f"{path} has no {', '.join(missing)}: bundles have them since `antctl explain` exists")
    lacks = [f"{path.name}: {kind.title} are not there" for kind in KINDS if kind.title not in sections]
    items: dict[str, list[dict[str, Any]]] = {}
    for kind in KINDS:
        rows, complaint = sections.get(kind.title, ([], ""))
        items[kind.field] = rows
        if complaint:
            lacks.append(f"{path.name}: {kind.title} {complaint}")
    documents, _ = sections.get("configs", ([], ""))
    config = next(
        (document for document in documents if document.get("metadata", {}).get("name") == CONFIG_MAP), None
    )
    return _source(items, lacks, config, f"{path.name} does not have it")


def _settings(config_map: Mapping[str, Any] | None, lack: str) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings of the agents' configuration, or the defaults and why they apply."""
    from antrea.config.agent import AgentConfig  # noqa: PLC0415 (start-up time)
    from antrea.config.load import parse  # noqa: PLC0415
    from antrea.features.framework.config_validation import accept_agent  # noqa: PLC0415

    text = ((config_map or {}).get("data") or {}).get(CONFIG_FILE)
    if text is None:
        lack = lack or f"it has no {CONFIG_FILE}"
    try:
        config = parse(AgentConfig, text or "").config
        gates = accept_agent(config)
    except Invalid as error:
        lack, config = str(error), AgentConfig()
        gates = accept_agent(config)
    said = (f"ConfigMap {CONFIG_MAP}: {lack}: AntreaProxy is taken to be as by default",) if lack else ()
    ports, links = guard_ports(config), NodeLinks(config.traffic_encap_mode, config.tunnel_type)
    if "AntreaProxy" not in gates:
        return Settings(None, gates.names, ports, config.no_snat, links), said
    proxy_config = config.antrea_proxy
    hints = "PreferSameTrafficDistribution" in gates
    proxy = Proxy(
        frozenset(proxy_config.skip_services),
        proxy_config.service_proxy_name,
        proxy_config.proxy_all,
        proxy_config.proxy_load_balancer_ips,
        hints,
        proxy_config.default_load_balancer_mode if "LoadBalancerModeDSR" in gates else "",
        config.has_tunnel,
        proxy_config.serve_node_external_ips,
    )
    return Settings(proxy, gates.names, ports, config.no_snat, links), said


def guard_ports(config: AgentConfig) -> GuardPorts:
    """The ports that Nodes keep open for each other, and the agent's own."""
    return GuardPorts(config.tunnel_port_number, config.cluster_port, config.api_port)


def _sections(path: Path) -> Iterator[tuple[str, tuple[list[dict[str, Any]], str]]]:
    """Title, documents and what is named as missing, of each section."""
    title, lines, complaint = "", list[str](), ""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith("# "):
                complaint = line[2:].strip()
            elif line.startswith("#"):
                if title:
                    yield title, (_documents(path, lines), complaint)
                title, lines, complaint = line[1:].strip(), [], ""
            else:
                lines.append(line)
    if title:
        yield title, (_documents(path, lines), complaint)


def _documents(path: Path, lines: list[str]) -> list[dict[str, Any]]:
    try:
        return guarded(str(path), _loaded, "".join(lines))
    except Invalid as error:
        raise Failure(str(error)) from error


def _loaded(text: str) -> list[dict[str, Any]]:
    import yaml  # noqa: PLC0415 (start-up time)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, Loader=loader) if document]
