"""Objects of kube-apiserver for a support bundle, and the logs of programs that do not answer.

Secrets are taken out here, as these texts still have them. parity: pkg/antctl/raw/supportbundle/command.go getClusterInfo,
downloadFallbackAgentBundleFromKubernetes, downloadFallbackControllerBundleFromKubernetes
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import time
from typing import IO, TYPE_CHECKING, Any

from antrea.antctl.failure import Failure
from antrea.antctl.remote import AGENT_INFOS, CONTROLLER_INFO
from antrea.antctl.request import ErrorResponse, ask, save
from antrea.antctl.supportbundle.command import create
from antrea.explain.objects import KINDS
from antrea.outside.support_bundle.redaction import Redaction, tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from antrea.antctl.request import Server

PAGE = 500
LISTS = (
    ("pods", "/api/v1/pods"),
    ("nodes", "/api/v1/nodes"),
    ("deployments", "/apis/apps/v1/deployments"),
    ("replicas", "/apis/apps/v1/replicasets"),
    ("daemonsets", "/apis/apps/v1/daemonsets"),
    *((kind.title, kind.path) for kind in KINDS if kind.title not in ("pods", "nodes")),
)
"""Titles of sections; those of `KINDS` are what `antctl explain` reads."""
CONFIG_MAPS = ("antrea-config", "antrea-ca", "antrea-ipsec-ca", "antrea-cluster-identity")
LOG_BYTES = 64 << 20
"""Maximum size of one container's log."""


def listed(kubernetes: Server, path: str, **query: str) -> Iterator[dict[str, Any]]:
    """All objects of a list, page by page. Raises Failure."""
    page = {**query, "limit": str(PAGE)}
    while True:
        page_items = ask(kubernetes, path, page)
        yield from page_items.get("items") or ()
        following = page_items.get("metadata", {}).get("continue", "")
        if not following:
            return
        page["continue"] = following


def write_cluster(kubernetes: Server, namespace: str, path: Path) -> list[str]:
    """The file clusterinfo; what could not be had, each in a sentence. Raises OSError."""
    lacks = []
    with io.TextIOWrapper(create(path), encoding="utf-8") as file:
        for title, place in LISTS:
            file.write(f"#{title}\n")
            try:
                for item in listed(kubernetes, place):
                    _write(file, item)
            except Failure as error:
                file.write(f"# not complete: {error.message}\n")
                lacks.append(f"{title}: {error.message}")
        file.write("#configs\n")
        for name in CONFIG_MAPS:
            try:
                _write(file, ask(kubernetes, f"/api/v1/namespaces/{namespace}/configmaps/{name}", {}))
            except Failure as error:
                if not (isinstance(error, ErrorResponse) and error.status == 404):
                    lacks.append(f"ConfigMap {name}: {error.message}")
    return lacks


def _write(file: IO[str], document: dict[str, Any]) -> None:
    file.write(f"{_yaml(tree(document))}---\n")


def _yaml(document: Any) -> str:
    import yaml  # noqa: PLC0415 (start-up time)

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(
        yaml.dump(document, Dumper=dumper, sort_keys=True, default_flow_style=False, allow_unicode=True)
    )


def fallback_agents(kubernetes: Server, namespace: str, nodes: Collection[str], folder: Path) -> list[str]:
    """Logs of the agents on these Nodes, as bundles; the Nodes for which there are any. Raises Failure, OSError."""
    label = {"labelSelector": "app=antrea,component=antrea-agent"}
    saved = []
    for pod in listed(kubernetes, f"/api/v1/namespaces/{namespace}/pods", **label):
        node = pod["spec"].get("nodeName", "")
        if node in nodes:
            info = _optional(kubernetes, f"{AGENT_INFOS}/{node}")
            _bundle(kubernetes, pod, {"agentinfo": info}, folder / f"agent_{node}.tar.gz")
            saved.append(node)
    return saved


def fallback_controller(kubernetes: Server, folder: Path) -> None:
    """Logs of the controller, as a bundle. Raises Failure, OSError."""
    info = ask(kubernetes, CONTROLLER_INFO, {})
    reference = info.get("podRef", {})
    place = f"/api/v1/namespaces/{reference.get('namespace', 'kube-system')}/pods/{reference.get('name', '')}"
    pod = ask(kubernetes, place, {})
    path = folder / f"controller_{pod['spec'].get('nodeName', '')}.tar.gz"
    _bundle(kubernetes, pod, {"controllerinfo": info}, path)


def _optional(kubernetes: Server, path: str) -> Any:
    try:
        return ask(kubernetes, path, {})
    except Failure as error:
        return {"message": error.message}


def _bundle(kubernetes: Server, pod: dict[str, Any], documents: dict[str, Any], path: Path) -> None:
    """The tar.gz of one Pod's logs. Raises Failure if there are none, OSError."""
    names = [row["name"] for row in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]]
    part = path.with_name(f".{path.name}.part")
    failed = []
    try:
        with create(part) as whole, tarfile.open(fileobj=whole, mode="w:gz") as archive:
            for name, document in documents.items():
                _add(archive, name, io.BytesIO(_yaml(tree(document)).encode()))
            for container in names:
                with tempfile.TemporaryFile(dir=path.parent) as file:
                    try:
                        _log(kubernetes, pod["metadata"], container, file)
                    except Failure as error:
                        failed.append(f"{container}: {error.message}")
                        continue
                    short = container.removeprefix("antrea-")
                    _add(archive, f"logs/{short}/{container}.log", file)
        if len(failed) == len(names):
            raise Failure("; ".join(failed))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _log(kubernetes: Server, meta: dict[str, Any], container: str, file: IO[bytes]) -> None:
    """The end of a container's log, without secrets. Raises Failure."""
    place = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log"
    with tempfile.TemporaryFile() as raw:
        save(kubernetes, f"{place}?container={container}&limitBytes={LOG_BYTES}", raw)
        raw.seek(0)
        lines = (line.decode(errors="replace").rstrip("\n") for line in raw)
        file.writelines(f"{line}\n".encode() for line in Redaction().lines(lines))


def _add(archive: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = file.seek(0, io.SEEK_END)
    entry.mtime, entry.mode = int(time.time()), 0o644
    file.seek(0)
    archive.addfile(entry, file)
