"""A Kubernetes network plugin and security stack on Open vSwitch, drop-in compatible with Antrea."""
