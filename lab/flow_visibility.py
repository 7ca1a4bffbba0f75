"""Flow visibility in a lab that is up: agents that export, the flow aggregator with its store, traffic, and the web page on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from antrea.errors import Unavailable
from image_build import oci
from image_build.step import bound, step
from lab import antrea, cluster, demo, image_recipe, namespace
from lab.images import AGNHOST
from lab.record import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from image_build.oci import Image
    from image_build.step import Progress
    from lab.cluster import Lab

NAMESPACE, CONTROL = "flow-aggregator", "control"
OURS = (NAMESPACE, "antrea-flow-")
"""Prefixes of the names of the aggregator's objects without a Namespace."""
FILE = "antrea-agent.conf"
TRAFFIC = Path(__file__).with_name("flow_visibility.yaml")
ROLLOUT_SECONDS = 180
CONNECT_SECONDS = 5.0
CHUNK = 1 << 16


def sets(lab: Lab) -> list[str]:
    """Values of the chart, of a small aggregator on the first Node, which gets its image, that passes on what has traffic every 5 s."""
    return [
        "flowVisibility.enable=true",
        "flowAggregator.resources.requests.cpu=10m",
        "flowAggregator.config.activeFlowRecordTimeout=5s",
        f"flowAggregator.nodeSelector.kubernetes\\.io/hostname={lab.topology.nodes[0].name}",
    ]


def import_image(lab: Lab, tell: Progress) -> None:
    """Give the first Node the aggregator's own image, which labs do not have. Raises Unavailable."""
    import_images(lab, lab.topology.nodes[0].name, [image_recipe.product(tell, "--flow-aggregator")])


def import_images(lab: Lab, node: str, images: Sequence[Image]) -> None:
    """Give a Node images. Raises Unavailable."""
    argv = ["ctr", "-n", "k8s.io", "images", "import", "-"]
    command = cluster.enter(lab, node, argv)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as importing:
        assert importing.stdin is not None
        oci.write(images, importing.stdin)
        importing.stdin.close()
        if importing.wait(300):
            names = ", ".join(name for image in images for name in image.names)
            raise Unavailable(f"{node}: ctr did not import {names}")


def rendered(values: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The aggregator's objects and the agents' configuration, as the chart makes them of its `values`."""
    objects = [document for document in yaml.safe_load_all(antrea.rendered(values)) if document]
    ours = [
        document for document in objects
        if document["metadata"].get("namespace") == NAMESPACE or document["metadata"]["name"].startswith(OURS)
    ]  # fmt: skip
    (config,) = (
        document["data"] for document in objects if document["metadata"]["name"] == antrea.CONFIG_MAP
    )
    return ours, yaml.safe_load(config[FILE])


def export(lab: Lab, agent: Mapping[str, Any]) -> None:
    """Give agents this configuration as far as it is about export, and leave the rest as it is."""
    about = ("-n", "kube-system", "configmap", antrea.CONFIG_MAP)
    now = yaml.safe_load(json.loads(lab.api.kubectl("get", *about, "-o", "json"))["data"][FILE]) or {}
    settings = {key: agent[key] for key in ("featureGates", "flowExporter")}
    text = yaml.safe_dump(antrea.merged(now, settings), sort_keys=False)
    lab.api.kubectl("patch", *about, "--type=merge", "-p", json.dumps({"data": {FILE: text}}))


def install(lab: Lab, tell: Progress) -> None:
    """Bring up all of it, and wait until the aggregator is ready; what stands already stays. Raises Unavailable."""
    with step(tell, "image of the flow aggregator"):
        import_image(lab, tell)
    ours, agent = rendered(sets(lab))
    with step(tell, "flow aggregator, with its store"):
        lab.api.apply(yaml.safe_dump_all(ours))
        export(lab, agent)
        ready = ("rollout", "status", "deployment/flow-aggregator", f"--timeout={ROLLOUT_SECONDS}s")
        lab.api.kubectl("-n", NAMESPACE, *ready, seconds=ROLLOUT_SECONDS + 10)
    with step(tell, "Pods client, server and visitor, which asks the server each second"):
        demo.start(lab)
        first = lab.topology.nodes[0].name
        lab.api.apply(TRAFFIC.read_text().replace("IMAGE", AGNHOST).replace("FIRST", first))


def listening(port: int) -> socket.socket:
    """A socket on a port of this machine's loopback. Raises Unavailable: the port is taken."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise Unavailable(
            f"port {port} of this machine: {error.strerror}; choose another one by --port"
        ) from error


def serve(lab: Lab, front: socket.socket, tell: Progress) -> None:
    """Serve the web page on this socket until interrupted."""
    token = lab.api.kubectl("-n", NAMESPACE, "create", "token", "lab-viewer", "--duration=8h").strip()
    with forwarded(lab) as inner, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(lab, front, inner, token, tell))


@contextlib.contextmanager
def forwarded(lab: Lab) -> Iterator[int]:
    """The port of kubectl port-forward to the aggregator, on the loopback of the control plane's network."""
    argv = lab.api.command(("-n", NAMESPACE, "port-forward", "deploy/flow-aggregator", ":10348"))
    with subprocess.Popen(bound(argv), stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            line = forwarding.stdout.readline()
            if not line:
                raise Unavailable("kubectl port-forward to deployment/flow-aggregator ended")
            yield int(line.split()[2].rpartition(":")[2])
        finally:
            forwarding.terminate()


async def _serve(lab: Lab, front: socket.socket, inner: int, token: str, tell: Progress) -> None:
    network = namespace.path(lab.record, CONTROL)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # at Ctrl-C it ends: asyncio takes one that was cancelled for a fault, and prints it
        with contextlib.suppress(OSError, asyncio.CancelledError):
            to = ("127.0.0.1", inner)
            stream = await asyncio.to_thread(namespace.connect, network, to, seconds=CONNECT_SECONDS)
            stream.setblocking(False)
            other, back = await asyncio.open_connection(sock=stream)
            await asyncio.gather(_copy(reader, back), _copy(other, writer))
        writer.close()

    async with await asyncio.start_server(answer, sock=front) as server:
        name = "" if lab.record.name == "default" else f" --name {lab.record.name}"
        tell(
            f"\nhttps://127.0.0.1:{front.getsockname()[1]}/ui    (the browser warns of its certificate, which the aggregator makes for itself)\n"
            f"Token to sign in with, for 8 hours:\n{token}\n"
            f"Connections from visitor to server appear within a minute. On a terminal:\n"
            f"  {PROGRAM} antctl{name} get flows\n"
            f"Serving until Ctrl-C; the lab runs until {PROGRAM} down{name}"
        )
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
