"""Handlers and probes that HTTP servers share."""
