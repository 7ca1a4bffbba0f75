"""Policies of policy.networking.k8s.io: AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy."""
