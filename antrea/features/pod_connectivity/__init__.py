"""Pods reach each other on this Node, and the gateway reaches them."""
