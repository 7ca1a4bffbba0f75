"""Kinds of policy.networking.k8s.io, the API of the network-policy-api project."""
