"""Calls of the CNI plugin: connect, check and disconnect Pods."""
