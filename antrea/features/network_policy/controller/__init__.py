"""Policies in the controller: computation of internal policies, their groups and their Nodes."""
