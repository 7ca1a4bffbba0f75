"""Declaration of a feature gate: an element of `GATES` of module `gate` in a feature's folder."""

from __future__ import annotations

from typing import Literal

import msgspec

Component = Literal["agent", "controller"]
Stage = Literal["ALPHA", "BETA", "GA", "DEPRECATED"]
BOTH: tuple[Component, ...] = ("agent", "controller")
AGENT: tuple[Component, ...] = ("agent",)
CONTROLLER: tuple[Component, ...] = ("controller",)


class Gate(msgspec.Struct, frozen=True):
    """One row of `antctl get featuregates` and of docs/generated/feature-gates.md."""

    name: str
    components: tuple[Component, ...]
    stage: Stage
    default: bool
    """Whether upstream has the feature on when nothing is configured."""
    since: str
    """Upstream's releases by stage, oldest first."""
    purpose: str
    locked: bool = False
    """Whether it may not be set to anything but its default."""
    built: bool = False
    """Whether this program has the feature; a gate that is not built is Disabled, and asking for it is refused."""
    always: str = ""
    """Why the feature is on whatever is set; empty: the gate decides."""
    needs: str = ""
    """The gate without which this one has no effect."""
    requires: str = ""
    """The gate without which a configuration that sets this one is refused."""
