"""Webhooks of kinds for which upstream has none: they only warn that a feature is off or not built yet.

They never deny, also when they do not answer. A feature that is built, and whose gate only agents read, has no row here.
"""

from __future__ import annotations

from typing import Any

from antrea.features.framework.admission import Webhook
from antrea.features.registry.crds import CRDS

_RESOURCES = (
    "externalnodes",
    "externalentities",
)
_DEFINITIONS = {crd.plural: crd for crd in CRDS}

WEBHOOKS = tuple(
    Webhook(
        f"{resource}.feature.antrea.io",
        f"/validate/feature/{resource}",
        ("CREATE",),
        "crd.antrea.io",
        tuple(version.name for version in _DEFINITIONS[resource].versions),
        resource,
        "*",
        dict[str, Any],
        "warns while the feature is off or not built",
        # of several gates the last is the one that acts on the kind; those before it let policies select its objects
        feature=_DEFINITIONS[resource].gates[-1],
        failure="Ignore",
    )
    for resource in _RESOURCES
    if resource in _DEFINITIONS
)
