"""IPFIX as values: elements, templates, messages in both directions (RFC 7011, RFC 7012, RFC 5103). No I/O."""
