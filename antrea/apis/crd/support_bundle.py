"""SupportBundleCollection of crd.antrea.io/v1alpha1.

Source: upstream pkg/apis/crd/v1alpha1/types.go, build/charts/antrea/crds/supportbundlecollection.yaml
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from antrea.apis.crd.part import Condition, CrdStruct, LabelSelector, Metadata, selector
from antrea.apis.schema import doc


class BundleNodes(CrdStruct, frozen=True):
    """Nodes by name and by label; all if neither is given."""

    node_names: Annotated[tuple[str, ...], doc("Names of Nodes.")] = ()
    node_selector: Annotated[LabelSelector | None, selector("Nodes")] = None


class BundleExternalNodes(CrdStruct, frozen=True):
    """ExternalNodes of a Namespace by name and by label; all if neither is given."""

    namespace: Annotated[str, doc("Their Namespace.")]
    node_names: Annotated[tuple[str, ...], doc("Names of ExternalNodes.")] = ()
    node_selector: Annotated[LabelSelector | None, selector("ExternalNodes")] = None


class BundleFileServer(CrdStruct, frozen=True):
    """Where the files are sent."""

    url: Annotated[str, doc("Such as sftp://10.0.0.1:22/bundles.")] = ""
    host_public_key: Annotated[
        bytes,
        doc(
            "Key of the server; without one nothing goes to a server of SFTP, unless an annotation accepts any."
        ),
    ] = b""


class SecretReference(CrdStruct, frozen=True):
    """A Secret by name."""

    name: Annotated[str, doc("Name of the Secret.")] = ""
    namespace: Annotated[str, doc("Namespace of the Secret.")] = ""


class BundleServerAuthConfiguration(CrdStruct, frozen=True):
    """How the sender is authenticated at the server."""

    auth_type: Annotated[
        Literal["BearerToken", "APIKey", "BasicAuthentication"] | None, doc("What the Secret holds.")
    ] = None
    auth_secret: SecretReference | None = None


class SupportBundleCollectionSpec(CrdStruct, frozen=True):
    """Sources of the collection and destination of its files."""

    schema_keywords: ClassVar[dict[str, Any]] = {
        "anyOf": [{"required": ["nodes"]}, {"required": ["externalNodes"]}]
    }

    file_server: BundleFileServer
    authentication: BundleServerAuthConfiguration
    nodes: BundleNodes | None = None
    external_nodes: BundleExternalNodes | None = None
    expiration_minutes: Annotated[int, doc("Minutes until it fails.", default=60)] = 60
    since_time: Annotated[str, doc("How old logs may be, such as 2h; all if empty.", format="duration")] = ""


class SupportBundleCollectionStatus(CrdStruct, frozen=True):
    """How far the collection is."""

    collected_nodes: Annotated[int, doc("Nodes that have sent their files.")] = 0
    desired_nodes: Annotated[int, doc("Nodes that should.")] = 0
    conditions: Annotated[
        tuple[Condition, ...], doc("Started, BundleCollected, CollectionFailure, Completed.")
    ] = ()


class SupportBundleCollection(CrdStruct, frozen=True):
    """Logs and state of Nodes, collected on a file server."""

    metadata: Metadata = Metadata()
    spec: SupportBundleCollectionSpec = SupportBundleCollectionSpec(
        BundleFileServer(), BundleServerAuthConfiguration()
    )
    """Objects without it are accepted, as upstream does."""
    status: SupportBundleCollectionStatus = SupportBundleCollectionStatus()
