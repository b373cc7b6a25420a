"""Whether this interpreter has more than one distribution that brings a module ``deep_ep``."""

from __future__ import annotations

import importlib.metadata
from typing import Iterable, Optional

OWN_DISTRIBUTION = "ferry-ep"


def _name_of(distribution: importlib.metadata.Distribution) -> str:
    """Lower case with hyphens; "" where the metadata are damaged."""
    metadata = distribution.metadata
    name = metadata["Name"] if metadata is not None else None
    return (name or "").lower().replace("_", "-")


def _read(distribution: importlib.metadata.Distribution, file: str) -> str:
    try:
        return distribution.read_text(file) or ""
    except (OSError, UnicodeDecodeError):
        return ""


def _brings_deep_ep(distribution: importlib.metadata.Distribution) -> bool:
    if _name_of(distribution) == "deep-ep":
        return True
    if "deep_ep" in _read(distribution, "top_level.txt").split():
        return True
    return "\ndeep_ep/__init__.py," in "\n" + _read(distribution, "RECORD")


def find_other_owner(
    distributions: Optional[Iterable[importlib.metadata.Distribution]] = None,
) -> Optional[str]:
    """The name and version of a distribution other than ours that brings ``deep_ep``, or None."""
    known = importlib.metadata.distributions() if distributions is None else distributions
    for distribution in known:
        if _name_of(distribution) != OWN_DISTRIBUTION and _brings_deep_ep(distribution):
            return f"{distribution.metadata['Name']} {distribution.version}"
    return None


def refuse_other_owner() -> None:
    other = find_other_owner()
    if other is not None:
        raise ImportError(
            f"the module 'deep_ep' of FerryEP is installed beside the one of '{other}', and which "
            f"one is imported depends on the path; try: pip uninstall {other.split()[0]}"
        )
