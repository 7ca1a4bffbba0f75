"""Where the objects for an explanation come from: kube-apiserver, or the file clusterinfo of a support bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.failure import Failure
from antrea.antctl.request import Answered
from antrea.antctl.supportbundle_cluster import listed
from antrea.explain.objects import KINDS, Objects, objects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from antrea.antctl.request import Server

FILE = "clusterinfo"
NEEDED = frozenset({"pods", "namespaces", "networkpolicies.networking.k8s.io"})
"""Without these there is no answer."""


class Source(NamedTuple):
    """Objects, and what could not be had, each in a sentence."""

    objects: Objects
    lacks: tuple[str, ...] = ()


def of_cluster(kubernetes: Server) -> Source:
    """By lists of all kinds. Raises Failure if a kind may not be listed, Invalid for an object that nobody understands."""
    found: dict[str, list[dict[str, Any]]] = {}
    lacks = []
    for kind in KINDS:
        try:
            found[kind.field] = list(listed(kubernetes, kind.path))
        except Answered as why:
            if why.status != 404 or kind.title in NEEDED:
                raise Failure(f"{kind.title}: {why.message}") from why
            lacks.append(f"the cluster does not know {kind.title}: none is taken into account")
    return Source(objects(found), tuple(lacks))


def of_bundle(path: Path) -> Source:
    """By a support bundle. Raises Failure for one that has too little, Invalid."""
    path = path / FILE if path.is_dir() else path
    try:
        sections = dict(_sections(path))
    except OSError as why:
        raise Failure(
            f"{path}: {why.strerror or why}: an explanation needs the file {FILE} of a bundle"
        ) from why
    missing = sorted(NEEDED - sections.keys())
    if missing:
        raise Failure(f"{path} has no {', '.join(missing)}: bundles have them since `antctl explain` exists")
    lacks = [f"{path.name}: {kind.title} are not there" for kind in KINDS if kind.title not in sections]
    found = {}
    for kind in KINDS:
        rows, complaint = sections.get(kind.title, ([], ""))
        found[kind.field] = rows
        if complaint:
            lacks.append(f"{path.name}: {kind.title} {complaint}")
    return Source(objects(found), tuple(lacks))


def _sections(path: Path) -> Iterator[tuple[str, tuple[list[dict[str, Any]], str]]]:
    """Title, documents and what is said to be missing, of each section."""
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
    import yaml  # noqa: PLC0415 (start-up time)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return [one for one in yaml.load_all("".join(lines), Loader=loader) if one]
    except yaml.YAMLError as why:
        raise Failure(f"{path}: {why}") from why
