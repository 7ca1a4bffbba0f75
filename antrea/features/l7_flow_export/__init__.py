"""Requests of annotated Pods (HTTP, TLS, DNS) in their flow records."""
