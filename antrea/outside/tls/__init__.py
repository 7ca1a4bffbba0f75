"""Certificates and TLS contexts."""
