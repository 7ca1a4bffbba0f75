"""`antctl doctor`: leftovers and conflicts on Nodes, each with the command that repairs it."""
