"""/metrics of the controller's two processes in one response; the label `process` distinguishes metrics that both have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp import web

from antrea.errors import Unavailable
from antrea.outside.log import klog
from antrea.outside.log.metrics import measured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.controller.apiserver.store_sync import ComputeClient
    from antrea.outside.http.handlers import Handler

log = klog.logger(__name__)

SERVING, COMPUTING = "serving", "computing"
OF_A_PROCESS = ("process_", "python_")
"""Families that every process has."""
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (.*)$")


def joined(texts: Mapping[str, str]) -> str:
    """One text of several processes' by the name of each; families keep their order, each has its header once."""
    families: dict[str, list[str]] = {}
    for process, text in texts.items():
        for family, line in _lines(text, process):
            lines = families.setdefault(family, [])
            if not (line.startswith("#") and line in lines):
                lines.append(line)
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _lines(text: str, process: str) -> Iterator[tuple[str, str]]:
    """Each line with the family that the last header named."""
    family = ""
    for line in text.splitlines():
        if line.startswith("# "):
            family = line.split(" ", 3)[2]
        if (sample := _SAMPLE.match(line)) and family.startswith(OF_A_PROCESS):
            name, labels, rest = sample.groups()
            inner = ",".join(filter(None, (labels, f'process="{process}"')))
            yield family, f"{name}{{{inner}}} {rest}"
        elif line:
            yield family, line


def metrics(computing: ComputeClient) -> Handler:
    """A handler; metrics that the compute process does not return in time are left out."""

    async def handler(_: web.Request) -> web.StreamResponse:
        texts = {SERVING: measured()}
        try:
            texts[COMPUTING] = await computing.metrics()
        except Unavailable as error:
            log.warning("Failed to get metrics from the compute process", err=str(error))
        return web.Response(text=joined(texts), content_type="text/plain")

    return handler
