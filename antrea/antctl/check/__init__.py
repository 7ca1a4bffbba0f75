"""`antctl check`: tests of a cluster before Antrea is installed, and of Antrea after it is."""
