"""Whether this interpreter has more than one distribution that brings a module ``deep_ep``."""

from __future__ import annotations

import importlib.metadata
from typing import Iterable, Optional

OWN_DISTRIBUTION = "ferry-ep"


def _normalised(name: Optional[str]) -> str:
    return (name or "").lower().replace("_", "-")


def _brings_deep_ep(distribution: importlib.metadata.Distribution) -> bool:
    if _normalised(distribution.metadata["Name"]) == "deep-ep":
        return True
    top_level = distribution.read_text("top_level.txt") or ""
    record = distribution.read_text("RECORD") or ""
    return "deep_ep" in top_level.split() or "\ndeep_ep/__init__.py," in "\n" + record


def find_other_owner(
    distributions: Optional[Iterable[importlib.metadata.Distribution]] = None,
) -> Optional[str]:
    """The name and version of a distribution other than ours that brings ``deep_ep``, or None."""
    for distribution in (
        importlib.metadata.distributions() if distributions is None else distributions
    ):
        name = distribution.metadata["Name"]
        if _normalised(name) != OWN_DISTRIBUTION and _brings_deep_ep(distribution):
            return f"{name} {distribution.version}"
    return None


def refuse_other_owner() -> None:
    other = find_other_owner()
    if other is not None:
        raise ImportError(
            f"the module 'deep_ep' of FerryEP is installed beside the one of '{other}', and which "
            f"one is imported depends on the path; try: pip uninstall {other.split()[0]}"
        )
