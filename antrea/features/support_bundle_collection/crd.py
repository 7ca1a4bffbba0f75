"""Kind of SupportBundleCollection, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import support_bundle
from antrea.apis.crd.definition import Crd, Version

CRDS = (
    Crd(
        "supportbundlecollections",
        ("sbc",),
        "Cluster",
        (Version("v1alpha1", support_bundle.SupportBundleCollection, status=True),),
        ("SupportBundleCollection",),
    ),
)
