"""The program that runs on every Node."""
