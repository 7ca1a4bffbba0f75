"""Sessions over TCP and TLS that others open."""
