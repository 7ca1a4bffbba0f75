"""Kinds of crd.antrea.io as typed structs, one module per noun; antrea/apis/crds.py declares how each is served."""
