"""Tier of crd.antrea.io/v1beta1.

Source: upstream pkg/apis/crd/v1beta1/types.go, build/charts/antrea/crds/tier.yaml
"""

from __future__ import annotations

from typing import Annotated

from antrea.apis.crd.part import CrdStruct, Metadata
from antrea.apis.schema import doc


class TierSpec(CrdStruct, frozen=True):
    """The place of a Tier."""

    priority: Annotated[int, doc("Place among the Tiers; the lowest goes first.", minimum=0, maximum=255)]
    description: Annotated[str, doc("What the Tier is for.")] = ""


class Tier(CrdStruct, frozen=True):
    """Policies that are looked at before or after those of other Tiers."""

    metadata: Metadata = Metadata()
    spec: TierSpec = TierSpec(priority=0)
    """Objects without it are accepted, as upstream does."""
