"""Every annotation of Antrea, of all features: its kinds of objects, its values, and its gate.

A feature declares its annotations in module `annotation` of its folder.
"""

from __future__ import annotations

from itertools import chain

from antrea.apis import annotation as names
from antrea.features import FEATURES
from antrea.features.framework.annotation import among
from antrea.features.framework.idle_request import AnnotationRule
from antrea.features.framework.plug import declared

FILE_SENDERS = ("PacketCapture.crd.antrea.io", "SupportBundleCollection.crd.antrea.io")
ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(
        names.ACCEPT_ANY_HOST_KEY, FILE_SENDERS, expected="true or false", understands=among("true", "false", ""),
        instead="nothing is sent to an SFTP server of an unknown key",
    ),
    *chain.from_iterable(declared(FEATURES, "annotation", AnnotationRule, "ANNOTATIONS").values()),
)  # fmt: skip
BY_NAME = {rule.name: rule for rule in ANNOTATIONS}
if len(BY_NAME) != len(ANNOTATIONS):
    raise ValueError("an annotation has two rules")
WRITTEN: frozenset[str] = frozenset(
    (
        names.TRANSPORT_ADDRESSES,
        names.LINK,
        names.SILENT_SUBNETS,
        names.KEPT_EXTERNAL_IPS,
        names.PORT_LOCAL,
        names.GATES_IN_EFFECT,
        names.STATS_EPOCH,
        names.STATS_ACCOUNT,
        names.STATS_SERIAL,
    )
)
"""Annotations that programs write; users ask for nothing with them."""
