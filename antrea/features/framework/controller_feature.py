"""Declaration of a feature to the controller: its watches, the units that compute, and what is sent to agents."""

from __future__ import annotations

import msgspec

from antrea.engine import Unit
from antrea.features.framework.admission import Watched
from antrea.features.framework.gate import Gates
from antrea.features.framework.query import Answers


class ControllerFeature(msgspec.Struct, frozen=True):
    """Declaration of a feature to the controller. All fields but the name have a default: a feature sets what it has."""

    name: str
    watched: tuple[Watched, ...] = ()
    """Watches of kube-apiserver that its rows come from."""
    units: tuple[Unit, ...] = ()
    publishes: tuple[str, ...] = ()
    """Plurals of controlplane.antrea.io that it fills: agents may begin once all that is watched has been listed."""
    gate: Gates = ""
    """Feature gate that turns it on, or several, any of which does; empty: always on."""
    answers: Answers = {}
    """Queries of the aggregated API that it answers, whatever its gate: where it is off, nothing is selected or matched."""
