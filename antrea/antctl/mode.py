"""The program that antctl queries, found from where it runs, as upstream pkg/antctl/runtime finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Mode(NamedTuple):
    """`name` is a letter of commands.py, `component` completes help texts, `server` is the default host:port."""

    name: str
    component: str
    server: str


AGENT = Mode("A", "agent", "127.0.0.1:10350")
CONTROLLER = Mode("C", "controller", "127.0.0.1:10349")
FLOW_AGGREGATOR = Mode("F", "flow-aggregator", "127.0.0.1:10348")
REMOTE = Mode("R", "controller", "")
"""A workstation with a kubeconfig."""


def mode_of(environ: Mapping[str, str]) -> Mode:
    """The mode by the name of the Pod that antctl runs in."""
    pod = environ.get("POD_NAME", "")
    for prefix, mode in (
        ("antrea-agent", AGENT),
        ("antrea-controller", CONTROLLER),
        ("flow-aggregator", FLOW_AGGREGATOR),
    ):
        if pod.startswith(prefix):
            return mode
    return REMOTE
