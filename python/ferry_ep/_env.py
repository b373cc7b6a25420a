"""Every FERRY_* variable, as `ferry env --explain` prints them."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import List

from ._library import check, lib
from ._structs import EnvLineStruct


@dataclasses.dataclass(frozen=True)
class EnvLine:
    """One variable: its value in force and where it came from."""

    name: str
    value: str  # "(set)" for secrets
    source: str  # "default" or "environment"
    fallback: str  # the default
    help: str


def env_table() -> List[EnvLine]:
    """The environment of this process as it is now. Raises for a malformed value."""
    table, count = ctypes.c_void_p(), ctypes.c_size_t()
    check(lib.ferry_env_table_open(ctypes.byref(table)))
    try:
        check(lib.ferry_env_table_num_lines(table, ctypes.byref(count)))
        return [_line(table, index) for index in range(count.value)]
    finally:
        lib.ferry_env_table_free(table)


def _line(table: ctypes.c_void_p, index: int) -> EnvLine:
    struct = EnvLineStruct()
    check(lib.ferry_env_table_line(table, index, ctypes.byref(struct)))
    return EnvLine(*[(getattr(struct, field.name) or b"").decode()
                     for field in dataclasses.fields(EnvLine)])
