"""Resource of the aggregated API for SupportBundleCollections: what each Node has to upload, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.apis import controlplane_report as report
from antrea.apis.resource import Subresource
from antrea.features.framework.api_resource import CREATE, WATCHED, controlplane_resource

if TYPE_CHECKING:
    from antrea.apis.meta import ObjectMetadata


def blank_collection(metadata: ObjectMetadata) -> cp.SupportBundleCollection:
    """Return a collection that has metadata alone."""
    return cp.SupportBundleCollection(
        metadata=metadata,
        expired_at=None,
        file_server=cp.BundleFileServer(url=""),
        authentication=cp.BundleServerAuthConfiguration(),
    )


RESOURCES = (
    controlplane_resource(
        "supportbundlecollections",
        "supportbundlecollection",
        cp.SupportBundleCollection,
        WATCHED,
        make=blank_collection,
        subresources=(Subresource("status", report.SupportBundleCollectionStatus, CREATE),),
    ),
)
