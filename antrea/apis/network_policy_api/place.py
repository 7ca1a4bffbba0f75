"""Locations of the kinds of policy.networking.k8s.io in the API."""

from __future__ import annotations

from typing import NamedTuple

from antrea.apis.network_policy_api.part import GROUP


class Place(NamedTuple):
    """Location of policies of a kind in the API."""

    version: str
    plural: str
    kind: str

    @property
    def collection(self) -> str:
        """Path of all objects of the kind."""
        return f"/apis/{GROUP}/{self.version}/{self.plural}"


PLACES = {
    "AdminNetworkPolicy": Place("v1alpha1", "adminnetworkpolicies", "AdminNetworkPolicy"),
    "BaselineAdminNetworkPolicy": Place(
        "v1alpha1", "baselineadminnetworkpolicies", "BaselineAdminNetworkPolicy"
    ),
    "K8sClusterNetworkPolicy": Place("v1alpha2", "clusternetworkpolicies", "ClusterNetworkPolicy"),
}
"""Locations by the type of their references."""
