"""The Pods that checks run in: any image with a shell and one of agnhost, nc or python3 will do.

So upstream's antrea/toolbox works, and where no registry is reached, agnhost or the image that the agents run already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.antctl.request import ErrorResponse, ask

if TYPE_CHECKING:
    from antrea.antctl.request import Server

DEFAULT_IMAGE = "antrea/toolbox:1.7-0"
IDLE = "trap 'exit 0' TERM; sleep 2147483647 & wait"
SERVE = """
if [ -x /agnhost ]; then exec /agnhost netexec --http-port=80 --udp-port=-1; fi
if command -v nc > /dev/null; then exec nc -l -k 80; fi
exec python3 -c '
import socket
two = socket.has_dualstack_ipv6()
family = socket.AF_INET6 if two else socket.AF_INET
server = socket.create_server(("", 80), family=family, dualstack_ipv6=two)
while True:
    server.accept()[0].close()
'"""
PROBE = """
if [ -x /agnhost ]; then exec /agnhost connect --timeout=3s "$3"; fi
if command -v nc > /dev/null; then exec nc -v -z -w 3 "$1" "$2"; fi
exec python3 -c '
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
except OSError as error:
    sys.exit(str(error))
' "$1" "$2"
"""
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}


def image_of_agents(server: Server, namespace: str) -> str:
    """Return the image of the agents, which every Node has, and DEFAULT_IMAGE if there are none. Raises Failure.

    Only in Antrea's Namespace: users of another one can give a DaemonSet the same name, and an image of their choice.
    """
    try:
        daemon_set = ask(server, f"/apis/apps/v1/namespaces/{namespace}/daemonsets/antrea-agent", {})
    except ErrorResponse as error:
        if error.status != 404:
            raise
        return DEFAULT_IMAGE
    containers = daemon_set["spec"]["template"]["spec"]["containers"]
    return next((str(row["image"]) for row in containers if row["name"] == "antrea-agent"), DEFAULT_IMAGE)


def probe(host: str, port: int) -> list[str]:
    """The command that ends with 0 if a TCP connection to `host` can be made within 3 s."""
    return [
        "sh",
        "-c",
        PROBE,
        "probe",
        host,
        str(port),
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
    ]


def deployment(name: str, image: str, labels: dict[str, str], script: str, **pod: Any) -> dict[str, Any]:
    """One Pod that runs `script`; `pod` has more fields of its spec, and `container` more of its container."""
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        **pod.pop("container", {}),
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "tolerations": [CONTROL_PLANE],
        **pod,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def service(name: str, port: int) -> dict[str, Any]:
    """The Service of the Pods with the label name=`name`, of both families where the cluster has them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "type": "ClusterIP",
            "ports": [{"name": name, "port": port}],
            "selector": {"name": name},
            "ipFamilyPolicy": "PreferDualStack",
        },
    }
