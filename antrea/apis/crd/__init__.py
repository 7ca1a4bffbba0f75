"""Kinds of crd.antrea.io as typed structs, one module per noun; crd.py of features in antrea/features declares how each is served."""
