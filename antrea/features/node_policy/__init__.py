"""Policies on Nodes: rules of ClusterNetworkPolicies with a nodeSelector, as nftables on the Node."""
