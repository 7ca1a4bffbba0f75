"""The engine that reads requests of application protocols, in a container of its own."""
