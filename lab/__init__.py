"""A real Kubernetes cluster on this machine, described first and then realized."""
