"""Connectivity of Pods with each other and with the gateway of this Node."""
