"""IPFIX on sockets: an exporting process and a collecting one, over TCP, TLS and UDP (RFC 7011, chapter 10)."""
