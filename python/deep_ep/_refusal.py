"""What a call that breaks a rule of DeepEP's interface raises."""

from __future__ import annotations


class Refused(AssertionError, RuntimeError):
    """DeepEP asserts in Python (AssertionError) or in C++ (RuntimeError); this is both."""


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)
