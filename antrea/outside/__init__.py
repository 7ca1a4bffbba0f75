"""The only effects: everything that touches the kernel, Open vSwitch, Kubernetes or the disk."""
