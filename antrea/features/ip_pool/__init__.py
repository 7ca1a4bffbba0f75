"""IPPool: addresses for Pods and their further interfaces."""
