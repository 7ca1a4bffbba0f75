"""The configuration file, and programs that are built anew when it changes."""
