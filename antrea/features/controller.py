"""What a feature declares to the controller: what it watches, the units that compute, and what agents are told."""

from __future__ import annotations

import msgspec

from antrea.engine import Unit
from antrea.features.admission import Watched


class ControllerFeature(msgspec.Struct, frozen=True):
    """One feature as the controller's assembly sees it."""

    name: str
    watched: tuple[Watched, ...] = ()
    """Collections of the API that its rows come from."""
    units: tuple[Unit, ...] = ()
    publishes: tuple[str, ...] = ()
    """Plurals of controlplane.antrea.io that it fills: agents may begin once all that is watched has been listed."""
    gate: str = ""
    """What it is part of; empty: always on."""
