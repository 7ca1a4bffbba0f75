"""`antctl kube-proxy`: hands Services over from kube-proxy to AntreaProxy, and back."""
