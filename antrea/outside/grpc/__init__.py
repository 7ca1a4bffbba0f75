"""gRPC over HTTP/2: the client of a stream, and a server. Loaded where it is configured alone."""
