"""Verdicts of policies on a packet, from the objects of the API alone: the answer of `antctl explain`, and an oracle for tests.

It imports nothing of what computes and enforces policies, so that both can be held against it.
"""
