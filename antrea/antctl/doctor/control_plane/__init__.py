"""Checks of the control plane: programs, registrations, certificates and reports, as kube-apiserver has them."""
