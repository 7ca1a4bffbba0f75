"""Requests of annotated Pods (HTTP, TLS, DNS) in the records of their connections."""
