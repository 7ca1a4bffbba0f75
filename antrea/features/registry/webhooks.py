"""Every webhook there is, and every collection that their decisions read.

Kinds for which upstream has no webhook have one that only warns while their feature is off or not built. It never denies, also when
it does not answer. A feature that is built, and whose gate only agents read, has none.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from antrea.features import FEATURES
from antrea.features.framework.admission import Watched, Webhook
from antrea.features.framework.plug import declared
from antrea.features.registry.crds import CRDS

_RESOURCES = (
    "externalnodes",
    "externalentities",
)
_DEFINITIONS = {crd.plural: crd for crd in CRDS}

FEATURE_WARNINGS: tuple[Webhook, ...] = tuple(
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


_WEBHOOKS = declared(FEATURES, "admission", Webhook, "WEBHOOKS")
_WATCHED = declared(FEATURES, "admission", Watched, "WATCHED")
WEBHOOKS: tuple[Webhook, ...] = (*chain.from_iterable(_WEBHOOKS.values()), *FEATURE_WARNINGS)
WATCHED: tuple[Watched, ...] = (*chain.from_iterable(_WATCHED.values()),)
