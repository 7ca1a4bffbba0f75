"""The cluster as a workstation sees it: kube-apiserver by the kubeconfig, and the controller's own port behind it.

Source: upstream pkg/antctl/raw/helper.go; a program's own API is reached at the address of its Node.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antrea.antctl.failure import Failure
from antrea.antctl.request import ErrorResponse, Loopback, Server, ask
from antrea.outside.tls.pem import decode_pem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.outside.kube.access import Access
    from antrea.outside.kube.override import Override

CONTROLLER_INFO = "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos/antrea-controller"
AGENT_INFOS = "/apis/crd.antrea.io/v1beta1/antreaagentinfos"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
AGENT_PODS = "app=antrea,component=antrea-agent"
"""Labels of the Pods of agents."""
TOKEN_SECONDS = 600
"""The shortest time that kube-apiserver gives a token for."""


def cluster(given: str | None, override: Override, environ: Mapping[str, str] = os.environ) -> Access:
    """kube-apiserver by --kubeconfig, $KUBECONFIG, ~/.kube/config or the Pod's ServiceAccount. Raises Failure."""
    import msgspec  # noqa: PLC0415 (start-up time)

    from antrea.errors import AntreaError  # noqa: PLC0415
    from antrea.outside.kube.access import in_cluster  # noqa: PLC0415
    from antrea.outside.kube.kubeconfig import Kubeconfig, access_of  # noqa: PLC0415

    paths = _kubeconfigs(given, environ)
    files = [path for path in paths if given or path.exists()]
    try:
        if not files and environ.get("KUBERNETES_SERVICE_HOST"):
            return override.apply(in_cluster(environ, override=override.server))
        # with the address of a server kubectl needs no file
        config = Kubeconfig.of(files or ([] if override.server else paths[:1]))
        access = access_of(config, override, plugins=True)
    except AntreaError as error:
        hint = "" if files else " (-k or KUBECONFIG names another kubeconfig)"
        raise Failure(f"{error}{hint}") from error
    # as kubectl: the name in the certificate is that of the server in the file
    return msgspec.structs.replace(access, server_name="") if override.server else access


def _kubeconfigs(given: str | None, environ: Mapping[str, str]) -> list[Path]:
    """The flag's file, or those of the list KUBECONFIG, or the one at home; at least one.

    Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
    """
    if given:
        return [Path(given)]
    listed = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return list(dict.fromkeys(listed)) or [Path.home() / ".kube/config"]


def cluster_name(given: str | None, override: Override, environ: Mapping[str, str] = os.environ) -> str:
    """Return the cluster's name in the current context of the kubeconfig, or that of `override`; empty without a kubeconfig. Raises Failure."""
    from antrea.errors import Invalid  # noqa: PLC0415 (start-up time)
    from antrea.outside.kube import kubeconfig  # noqa: PLC0415

    paths = [path for path in _kubeconfigs(given, environ) if path.exists()]
    try:
        return kubeconfig.cluster_name(paths, override) if paths else ""
    except Invalid as error:
        raise Failure(str(error)) from error


def controller(kubernetes: Server, *, insecure: bool) -> Server:
    """The controller's own port, with the caller's credentials. Raises Failure."""
    info = ask(kubernetes, CONTROLLER_INFO, {})
    namespace = info.get("podRef", {}).get("namespace", "kube-system")
    node = ask(kubernetes, f"/api/v1/nodes/{info['nodeRef']['name']}", {})
    return _elsewhere(
        kubernetes,
        url=f"https://{_host(node)}:{info.get('apiPort', 10349)}",
        ca_pem="" if insecure else _ca(kubernetes, namespace),
        server_name=f"antrea.{namespace}.svc",
        insecure=insecure,
    )


def agent(kubernetes: Server, name: str, *, insecure: bool) -> Server:
    """The port of the agent on the Node `name`, without credentials yet: see `agent_token`. Raises Failure.

    The agent publishes its address itself, so it never gets the caller's own credentials.
    parity: pkg/antctl/raw/helper.go CreateAgentClientCfgFromObjects
    """
    node = ask(kubernetes, f"/api/v1/nodes/{name}", {})
    return agent_of(kubernetes, node, ask(kubernetes, f"{AGENT_INFOS}/{name}", {}), insecure=insecure)


def agent_of(
    kubernetes: Server, node: Mapping[str, Any], info: Mapping[str, Any], *, insecure: bool
) -> Server:
    """The port of an agent by its Node and its AntreaAgentInfo, as `agent`. Raises Failure."""
    from antrea.decoding import decode_base64  # noqa: PLC0415 (start-up time)
    from antrea.errors import Invalid  # noqa: PLC0415

    name = node["metadata"]["name"]
    if not info.get("nodeRef", {}).get("name"):
        raise Failure(f"AntreaAgentInfo is not ready for Node {name}")
    bundle = info.get("apiCABundle", "")
    if not bundle and not insecure:
        raise Failure(f"AntreaAgentInfo of Node {name} has no apiCABundle yet; --insecure does without")
    try:
        authority = decode_pem(decode_base64(bundle, "apiCABundle"))
    except Invalid as error:
        raise Failure(f"AntreaAgentInfo of Node {name}: apiCABundle is not base64: {error.why}") from error
    return _elsewhere(
        kubernetes,
        url=f"https://{_host(node)}:{info.get('apiPort', 10350)}",
        ca_pem="" if insecure else authority,
        # the certificate is for localhost only
        server_name="localhost",
        insecure=insecure,
        token="",
        token_file="",
        certificate_pem="",
        key_pem="",
        impersonate=(),
    )


def agent_token(kubernetes: Server, namespace: str) -> str:
    """A token of the ServiceAccount antctl that agents accept for TOKEN_SECONDS. Raises Failure."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/antctl/token"
    return str(ask(kubernetes, path, {}, body)["status"]["token"])


def antrea_namespace(kubernetes: Server) -> str:
    """Return the Namespace with the agents' DaemonSet. Raises Failure.

    Every user of a Namespace can create a DaemonSet with the same labels. Of several the one counts that AntreaControllerInfo names,
    which is not in a Namespace.
    """
    items = ask(kubernetes, DAEMON_SETS, {"labelSelector": AGENT_PODS})["items"]
    names = {item["metadata"]["namespace"]: str(item["metadata"]["name"]) for item in items}
    if not names:
        raise Failure(f"no DaemonSet has the labels {AGENT_PODS}: is Antrea installed?")
    if len(names) == 1:
        return str(next(iter(names)))
    if (reported := reported_namespace(kubernetes)) in names:
        return reported
    listed = ", ".join(f"{namespace}/{name}" for namespace, name in sorted(names.items()))
    report = f"names Namespace {reported}" if reported else "does not exist"
    raise Failure(
        f"several DaemonSets have the labels {AGENT_PODS}: {listed}; and AntreaControllerInfo antrea-controller {report}. "
        "Start antrea-controller, or remove a label from those that are not Antrea's: "
        "kubectl -n NAMESPACE label daemonset NAME component-"
    )


def reported_namespace(kubernetes: Server) -> str:
    """Return the Namespace of the controller's Pod by its report; empty: there is none, or it may not be read. Raises Failure."""
    try:
        return str(ask(kubernetes, CONTROLLER_INFO, {}).get("podRef", {}).get("namespace", ""))
    except ErrorResponse:
        return ""


def _elsewhere(kubernetes: Server, **changes: Any) -> Server:
    import msgspec  # noqa: PLC0415 (start-up time)

    if isinstance(kubernetes.access, Loopback):
        raise Failure("only remote mode is supported for this command")
    return kubernetes._replace(access=msgspec.structs.replace(kubernetes.access, **changes))


def _ca(kubernetes: Server, namespace: str) -> str:
    data = ask(kubernetes, f"/api/v1/namespaces/{namespace}/configmaps/antrea-ca", {}).get("data", {})
    if not data.get("ca.crt"):
        raise Failure(
            f"ConfigMap {namespace}/antrea-ca has no ca.crt yet: is the controller running? --insecure does without"
        )
    return str(data["ca.crt"])


def _host(node: Mapping[str, Any]) -> str:
    host = node_address(node)
    return f"[{host}]" if ":" in host else host


def node_address(node: Mapping[str, Any]) -> str:
    """The Node's ExternalIP, else its InternalIP, IPv4 before IPv6. Raises Failure."""
    rows = node.get("status", {}).get("addresses", [])
    for kind in ("ExternalIP", "InternalIP"):
        addresses = sorted(
            (ip_address(row["address"]).version, row["address"]) for row in rows if row["type"] == kind
        )
        if addresses:
            return str(addresses[0][1])
    raise Failure(f"Node {node['metadata']['name']} has neither ExternalIP nor InternalIP")
