"""How Antrea was installed, which decides what brings an object back: by a Helm release, or by a manifest."""

from __future__ import annotations

import base64
import gzip
import io
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.antctl.doctor.control_plane.cluster_state import name_of
from antrea.antctl.doctor.state import Finding
from antrea.apis.shown import one_line
from antrea.decoding import guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState

RELEASE: Final = "release"
CONFIG_MAP: Final = "antrea-config"
MAX_RELEASE: Final = 16 << 20
"""Bytes of a release after decompression; Helm's Secrets have 1 MiB at most before."""
MAX_KEYS: Final = 5
"""Keys that a finding names."""


class Release(NamedTuple):
    """A Helm release that rendered ConfigMap antrea-config, with that ConfigMap's files."""

    name: str
    revision: str
    files: Mapping[str, str]


def release_of(state: ClusterState) -> Release | None:
    """Return the Helm release of Antrea; None: there is none, or its Secret cannot be decoded."""
    for secret in state.releases or ():
        encoded = secret.get("data", {}).get("release", "")
        try:
            files = _config_of(encoded)
        except Invalid:
            continue
        if files:
            labels = secret["metadata"].get("labels", {})
            return Release(labels.get("name", ""), labels.get("version", ""), files)
    return None


@lru_cache(maxsize=8)
def _config_of(encoded: str) -> Mapping[str, str]:
    """Return the files of the ConfigMap that a release renders; empty: it renders none. Raises Invalid."""
    return guarded("release", _decoded, encoded)


def _decoded(encoded: str) -> dict[str, str]:
    import yaml  # noqa: PLC0415 (start-up time)

    packed = base64.b64decode(base64.b64decode(encoded))
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        manifest = str(json.loads(file.read(MAX_RELEASE))["manifest"])
    for part in manifest.split("\n---"):
        if "kind: ConfigMap" not in part or f"name: {CONFIG_MAP}" not in part:
            continue
        item: dict[str, Any] = yaml.safe_load(part.removeprefix("---"))
        if item["metadata"]["name"] == CONFIG_MAP:
            return dict(item["data"])
    return {}


def is_changed(owner: Mapping[str, Any], kind: str) -> bool:
    """Return whether the template of a Deployment or a DaemonSet is not its first one, so that there is one to return to."""
    key = (
        "deployment.kubernetes.io/revision"
        if kind == "deployment"
        else "deprecated.daemonset.template.generation"
    )
    return str(owner["metadata"].get("annotations", {}).get(key, "1")) != "1"


def undo(state: ClusterState, owner: Mapping[str, Any], kind: str) -> str:
    """Return the command that brings back the template before; empty: there was none."""
    if not is_changed(owner, kind):
        return ""
    if release := release_of(state):
        return f"helm -n {state.namespace} rollback {release.name}"
    return f"kubectl -n {state.namespace} rollout undo {kind}/{name_of(owner)}"


def create(state: ClusterState, manifest: str) -> str:
    """Return the command that makes objects that are missing, and leaves those that exist as they are."""
    if release := release_of(state):
        return f"helm -n {state.namespace} rollback {release.name} {release.revision}"
    return f"kubectl create -f {manifest}  # of this release; it leaves what exists as it is (AlreadyExists)"


def release(state: ClusterState) -> Iterator[Finding]:
    """Yield keys of the live configuration that differ from what Helm rendered, which the next upgrade undoes."""
    for secret in state.releases or ():
        try:
            _config_of(secret.get("data", {}).get("release", ""))
        except Invalid as error:
            name = secret["metadata"].get("labels", {}).get("name", name_of(secret))
            text = (
                f"Secret {name_of(secret)} of Helm release {name} cannot be decoded, so that ConfigMap {CONFIG_MAP} is not compared "
                f"with it: {one_line(str(error))}"
            )
            repair = f"helm -n {state.namespace} status {name}  # where Helm cannot read it either, upgrade the release"
            yield Finding("", "warning", RELEASE, text, repair)
    rendered = release_of(state)
    if rendered is None:
        return
    for file, text in sorted(rendered.files.items()):
        keys = differences(text, (state.config or {}).get(file, ""))
        if not keys:
            continue
        more = f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
        yield Finding(
            *("", "warning", RELEASE),
            f"{file} of ConfigMap {CONFIG_MAP} has other values than Helm release {rendered.name} (revision "
            f"{rendered.revision}) rendered, which the next upgrade puts back: {', '.join(keys[:MAX_KEYS])}{more}",
            f"helm -n {state.namespace} get manifest {rendered.name} | kubectl diff -f -  # set what is to stay as values",
        )


def differences(rendered: str, live: str) -> list[str]:
    """Return keys with other values in a live file than in the rendered one, each with both; of a file that is not YAML the cause."""
    try:
        before, now = (_values(guarded("the file", _tree, text)) for text in (rendered, live))
    except Invalid as error:
        return [str(error)]
    return [
        f"{key} ({json.dumps(now.get(key))}, rendered {json.dumps(before.get(key))})"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]


def _tree(text: str) -> Any:
    import yaml  # noqa: PLC0415 (start-up time)

    return yaml.safe_load(text)


def _values(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Return values by the path of their key."""
    if not isinstance(tree, dict):
        return {prefix: tree} if prefix else {}
    values: dict[str, Any] = {}
    for key, value in tree.items():
        values |= _values(value, f"{prefix}.{key}" if prefix else str(key))
    return values
