"""Webhook that labels every Namespace with antrea.io/metadata.name; optional, off in the chart by default.

parity: pkg/apiserver/handlers/webhook/mutation_labels.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.features.framework.admission import Patch, Webhook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.engine import Facts
    from antrea.features.framework.admission import Review

LABEL = "antrea.io/metadata.name"


class LabelledNamespace(CoreStruct, frozen=True):
    """/api/v1/namespaces"""

    metadata: ObjectMeta = ObjectMeta()


def label_namespace(_: Facts, review: Review[LabelledNamespace]) -> Iterable[Patch]:
    """Restore the label if it was removed or changed."""
    meta = review.new.metadata
    if meta.labels.get(LABEL) != meta.name:
        yield Patch("/metadata/labels", {**meta.labels, LABEL: meta.name})


WEBHOOKS = (
    Webhook(
        "namelabelmutator.antrea.io", "/mutate/namespace", ("CREATE", "UPDATE"), "", ("v1",), "namespaces",
        "Cluster", LabelledNamespace, f"sets the label {LABEL}", "labelsmutator.antrea.io", mutate=label_namespace,
    ),
)  # fmt: skip
