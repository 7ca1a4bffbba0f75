"""The kernel's nftables."""
