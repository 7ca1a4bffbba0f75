"""Pods reach the Pods of other Nodes, and the Node reaches both."""
