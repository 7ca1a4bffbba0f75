"""The label that carries a Namespace's name, for clusters whose API server does not set one itself."""
