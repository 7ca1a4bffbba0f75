"""Egress: the source address of Pods' traffic that leaves the cluster."""
