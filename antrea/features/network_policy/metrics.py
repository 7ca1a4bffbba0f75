"""Metrics of the controller for policies and groups."""

from __future__ import annotations

from antrea.features.framework.controller_metric import ControllerMetric

METRICS = (
    ControllerMetric(
        "antrea_controller_acnp_status_updates",
        "ClusterNetworkPolicy",
        "counter",
        "ALPHA",
        "The total number of actual status updates performed for Antrea ClusterNetworkPolicy Custom Resources",
    ),
    ControllerMetric(
        "antrea_controller_annp_status_updates",
        "NetworkPolicy",
        "counter",
        "ALPHA",
        "The total number of actual status updates performed for Antrea NetworkPolicy Custom Resources",
    ),
    ControllerMetric(
        "antrea_controller_address_group_processed",
        "addressgroups",
        "counter",
        "STABLE",
        "The total number of address-group processed ",
    ),
    ControllerMetric(
        "antrea_controller_applied_to_group_processed",
        "appliedtogroups",
        "counter",
        "STABLE",
        "The total number of applied-to-group processed",
    ),
    ControllerMetric(
        "antrea_controller_network_policy_processed",
        "networkpolicies",
        "counter",
        "STABLE",
        "The total number of internal-networkpolicy processed",
    ),
    ControllerMetric(
        "antrea_controller_length_address_group_queue",
        "addressgroups",
        "gauge",
        "STABLE",
        "The length of AddressGroupQueue",
    ),
    ControllerMetric(
        "antrea_controller_length_applied_to_group_queue",
        "appliedtogroups",
        "gauge",
        "STABLE",
        "The length of AppliedToGroupQueue",
    ),
    ControllerMetric(
        "antrea_controller_length_network_policy_queue",
        "networkpolicies",
        "gauge",
        "STABLE",
        "The length of InternalNetworkPolicyQueue",
    ),
    ControllerMetric(
        "antrea_controller_address_group_sync_duration_milliseconds",
        "addressgroups",
        "histogram",
        "ALPHA",
        "The duration of syncing address-group",
    ),
    ControllerMetric(
        "antrea_controller_applied_to_group_sync_duration_milliseconds",
        "appliedtogroups",
        "histogram",
        "ALPHA",
        "The duration of syncing applied-to-group",
    ),
    ControllerMetric(
        "antrea_controller_network_policy_sync_duration_milliseconds",
        "networkpolicies",
        "histogram",
        "ALPHA",
        "The duration of syncing internal-networkpolicy",
    ),
)
