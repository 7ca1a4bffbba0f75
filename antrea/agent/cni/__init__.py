"""Calls of the CNI plugin: Pods are connected, checked and disconnected."""
