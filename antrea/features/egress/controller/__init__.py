"""Egress in the controller: Pods and addresses of each Egress."""
