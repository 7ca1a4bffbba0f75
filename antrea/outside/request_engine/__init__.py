"""The engine that reads HTTP requests, in a container of its own."""
