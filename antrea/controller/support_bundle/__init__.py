"""The effects of SupportBundleCollection in the controller: Secrets that are read, and time that passes."""
