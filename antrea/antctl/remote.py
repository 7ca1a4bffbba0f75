"""The cluster as a workstation sees it: kube-apiserver by the kubeconfig, and the controller's own port behind it.

Source: upstream pkg/antctl/raw/helper.go; a program's own API is reached at the address of its Node.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antrea.antctl.failure import Failure
from antrea.antctl.request import Server, ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.outside.kube_access import Access

CONTROLLER_INFO = "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos/antrea-controller"


def cluster(given: str | None, override: str | None, environ: Mapping[str, str] = os.environ) -> Access:
    """kube-apiserver by --kubeconfig, $KUBECONFIG, ~/.kube/config or the Pod's ServiceAccount. Raises Failure."""
    from antrea.errors import AntreaError  # noqa: PLC0415 (start-up time)
    from antrea.outside.kube_access import in_cluster, kubeconfig  # noqa: PLC0415

    first = environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(given or first or Path.home() / ".kube/config")
    try:
        if not given and not path.exists() and environ.get("KUBERNETES_SERVICE_HOST"):
            return in_cluster(environ, override=override or "")
        return kubeconfig(path, override=override or "", plugins=True)
    except AntreaError as why:
        raise Failure(str(why)) from why


def controller(kubernetes: Server, *, insecure: bool) -> Server:
    """The controller's own port, with the caller's credentials. Raises Failure."""
    import msgspec  # noqa: PLC0415 (start-up time)

    info = ask(kubernetes, CONTROLLER_INFO, {})
    namespace = info.get("podRef", {}).get("namespace", "kube-system")
    node = ask(kubernetes, f"/api/v1/nodes/{info['nodeRef']['name']}", {})
    host = node_address(node)
    ca = "" if insecure else _ca(kubernetes, namespace)
    access = msgspec.structs.replace(
        kubernetes.access,
        url=f"https://{f'[{host}]' if ':' in host else host}:{info.get('apiPort', 10349)}",
        ca_pem=ca,
        server_name=f"antrea.{namespace}.svc",
        insecure=insecure,
    )
    return kubernetes._replace(access=access)


def _ca(kubernetes: Server, namespace: str) -> str:
    data = ask(kubernetes, f"/api/v1/namespaces/{namespace}/configmaps/antrea-ca", {}).get("data", {})
    if not data.get("ca.crt"):
        raise Failure(
            f"ConfigMap {namespace}/antrea-ca has no ca.crt yet: is the controller running? --insecure does without"
        )
    return str(data["ca.crt"])


def node_address(node: Mapping[str, Any]) -> str:
    """The Node's ExternalIP, else its InternalIP, IPv4 before IPv6. Raises Failure."""
    rows = node.get("status", {}).get("addresses", [])
    for kind in ("ExternalIP", "InternalIP"):
        found = sorted(
            (ip_address(row["address"]).version, row["address"]) for row in rows if row["type"] == kind
        )
        if found:
            return str(found[0][1])
    raise Failure(f"Node {node['metadata']['name']} has neither ExternalIP nor InternalIP")
