"""The program that computes for all Nodes."""
