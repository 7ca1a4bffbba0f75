"""The one way by which programs of this project take connections: bounded for clients that have proved nothing."""
