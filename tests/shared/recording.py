"""What was recorded of a real cluster ($ANTREA_GOLDEN), whatever the files are called: commands, answers, and objects.

A folder `raw` has a file for each answer: `# $ COMMAND`, `# < ` lines of response headers, the answer, `# exit N`, `# stderr:`.
`raw/get` has the objects and Pods of the cluster, `inputs` the manifests that were applied.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from antrea.apis.null import without_nulls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GOLDEN = Path(os.environ.get("ANTREA_GOLDEN", "/nowhere"))
RAW = GOLDEN / "raw"
SERVER_PORT = 6443
UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
AGE = re.compile(r"(?:\d+[dhms])+")
UNORDERED = (
    "groupMembers", "effectiveMembers", "associatedGroups", "appliedToGroups", "addressGroups", "items", "rows",
)  # fmt: skip
"""Lists whose order is one of chance with upstream."""
OF_THE_MOMENT = ("managedFields", "resourceVersion", "creationTimestamp", "lastHeartbeatTime", "generation")


class Recording(NamedTuple):
    """A command and how it ended: `code` is of HTTP, or the exit code of a program."""

    name: str
    words: tuple[str, ...]
    code: int
    body: str
    stderr: str


class Request(NamedTuple):
    """What a command asks by HTTP; `port` is the API server's or the controller's own."""

    method: str
    port: int
    path: str
    accept: str
    body: Any
    certified: bool


def read(name: str) -> Recording | None:
    """None for a file that is no answer to one command."""
    head, *lines = (RAW / name).read_text(encoding="utf-8").splitlines(keepends=True) or [""]
    if not head.startswith("# $ "):
        return None
    command = re.sub(r"\s+\([^()]*\)$", "", head.removeprefix("# $ ").rstrip())
    code, body, stderr = 0, "", ""
    if lines and lines[0].startswith("HTTP/"):
        # headers as they came, up to an empty line
        end = next(at for at, line in enumerate(lines) if not line.strip())
        lines = [f"# < {lines[0]}", *lines[end + 1 :]]
    for at, line in enumerate(lines):
        if found := re.match(r"# (?:< HTTP/\S+|exit) (\d+)", line):
            code = int(found[1])
        elif line.startswith("# stderr:"):
            stderr = "".join(lines[at + 1 :])
            break
        elif not line.startswith("#"):
            body += line
    return Recording(name, tuple(shlex.split(command)), code, body, stderr)


def answers(*folders: str) -> list[Recording]:
    """Of these folders, in the order of their names."""
    names = [str(file.relative_to(RAW)) for one in folders for file in sorted((RAW / one).glob("*"))]
    return [found for name in names if (found := read(name))]


def request(words: tuple[str, ...]) -> Request | None:
    """What `kubectl get --raw PATH` or `curl URL` asks; None for another command."""
    if words[:3] == ("kubectl", "get", "--raw") and len(words) == 4:
        return Request("GET", SERVER_PORT, words[3], "application/json", None, certified=True)
    url = urlsplit(words[-1])
    if words[0] != "curl" or "..." in words or not url.port:
        return None
    options = dict(pairwise(words))
    body = options.get("--data-binary")
    accept = options.get("-H", "").removeprefix("Accept: ") or "application/json"
    path = url.path + (f"?{url.query}" if url.query else "")
    method = options.get("-X", "GET")
    return Request(method, url.port, path, accept, body and json.loads(body), certified="--cert" in words)


def objects(folder: str = "get") -> list[dict[str, Any]]:
    """All that the recorded lists of a folder have, the oldest first."""
    found: list[dict[str, Any]] = []
    for one in answers(folder):
        if one.words[-2:] == ("-o", "yaml") and "-A" in one.words:
            found += (yaml.safe_load(one.body) or {}).get("items", ())
    return sorted(found, key=lambda row: str(row["metadata"]["creationTimestamp"]))


def of_kind(kind: str, group: str = "crd.antrea.io") -> list[dict[str, Any]]:
    """The recorded objects of a kind."""
    return [one for one in objects() if one["kind"] == kind and one["apiVersion"].startswith(group)]


def plural(kind: str) -> str:
    """As it stands in a path."""
    word = kind.lower()
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("s") else f"{word}s"


def found_at(path: str, *folders: str) -> Recording | None:
    """The answer to a GET of this path in JSON, in one of the folders."""
    for one in answers(*folders):
        asked = request(one.words)
        wanted = ("GET", path, "application/json")
        if asked and (asked.method, asked.path, asked.accept) == wanted and one.body.startswith("{"):
            return one
    return None


def stream(path: str) -> Iterator[dict[str, Any]]:
    """Events of a recorded watch of this path, in JSON."""
    for line in lines_of_watch(path):
        if not line.startswith("#"):
            yield json.loads(line)


def lines_of_watch(path: str) -> list[str]:
    """Events of a recorded watch, and `# step: ` before what was done."""
    for file in sorted(RAW.glob("watch/*")):
        head, *lines = file.read_text(encoding="utf-8").splitlines()
        asked = request(tuple(shlex.split(head.removeprefix("# $ "))))
        if asked and (asked.path, asked.accept) == (path, "application/json"):
            return lines
    return []


def inputs(*kinds: str) -> Iterator[dict[str, Any]]:
    """Manifests of these kinds."""
    for file in sorted((GOLDEN / "inputs").glob("*.yaml")):
        yield from (one for one in yaml.safe_load_all(file.read_text()) if one and one["kind"] in kinds)


def table(*names: str) -> list[dict[str, str]]:
    """Rows of the recorded table of `kubectl get NAME`, by column; cells begin where the words of the head do."""
    found = [one for one in answers("get") if one.words[2] in names and one.words[-1] != "yaml"]
    return rows(found[0].body)


def phase(status: str) -> str:
    """Of a Pod by what kubectl shows under STATUS."""
    return {"Running": "Running", "Completed": "Succeeded", "Error": "Failed"}.get(status, "Pending")


def rows(text: str) -> list[dict[str, str]]:
    head, *lines = [line for line in text.splitlines() if line]
    columns = list(re.finditer(r"\S+(?: \S+)*", head))
    names, places = [one[0] for one in columns], [one.start() for one in columns]
    ends = [*places[1:], None]
    return [
        {name: line[at:to].strip() for name, at, to in zip(names, places, ends, strict=True)}
        for line in lines
    ]


def collection(one: dict[str, Any]) -> str:
    """Path of all objects of the kind of this one."""
    version = one["apiVersion"]
    return f"{'/apis' if '/' in version else '/api'}/{version}/{plural(one['kind'])}"


def key(one: dict[str, Any]) -> tuple[str, str]:
    """Namespace and name; a manifest without a Namespace may be of `default`."""
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


def renamed(text: str, uids: Mapping[str, str]) -> str:
    """`text` with the UIDs of objects as they are called here."""
    return UUID.sub(lambda found: uids.get(found[0], found[0]), text)


def normal(value: Any) -> Any:
    """A JSON value without what is of its moment, and with lists sorted that have no order."""
    if isinstance(value, dict):
        kept = {key: normal(one) for key, one in value.items() if key not in OF_THE_MOMENT}
        for key in kept.keys() & set(UNORDERED):
            if isinstance(kept[key], list):
                kept[key] = sorted(kept[key], key=lambda one: json.dumps(one, sort_keys=True))
        return {key: one for key, one in kept.items() if one not in ({}, [], "")}
    if isinstance(value, list):
        return [normal(one) for one in value]
    return TIME.sub("TIME", value) if isinstance(value, str) else value


def shown(text: str) -> Any:
    """An answer as it is compared: JSON or YAML as a value, a table as its sorted rows with one space between cells."""
    try:
        return normal(without_nulls(json.loads(text)))
    except ValueError:
        pass
    if text.startswith("apiVersion:"):
        return normal(without_nulls(yaml.safe_load(TIME.sub("TIME", text))))
    lines = [" ".join(AGE.sub("AGE", word) for word in line.split()) for line in text.splitlines()]
    return [*lines[:1], *sorted(lines[1:])]
