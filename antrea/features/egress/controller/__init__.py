"""Egress in the controller: which Pods and addresses each Egress has."""
