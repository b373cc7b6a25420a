"""The enumerations of the library. Values are those of ferry.h; a lower-case name is taken as well."""

from __future__ import annotations

import enum
from typing import Type, TypeVar, Union

from ._errors import InvalidArgumentError


class DType(enum.IntEnum):
    """Element types."""

    BF16 = 1
    FP16 = 2
    FP32 = 3
    FP8_E4M3 = 4  # e4m3fn: no infinity, 0x7F and 0xFF are NaN
    FP8_E5M2 = 5
    INT32 = 6
    INT64 = 7
    UINT8 = 8  # opaque one-byte elements
    UINT16 = 9  # opaque two-byte elements
    UINT32 = 10  # opaque four-byte elements

    @property
    def num_bytes(self) -> int:
        """Bytes of one element."""
        return _BYTES_OF[self]


_BYTES_OF = {
    DType.BF16: 2, DType.FP16: 2, DType.FP32: 4, DType.FP8_E4M3: 1, DType.FP8_E5M2: 1,
    DType.INT32: 4, DType.INT64: 8, DType.UINT8: 1, DType.UINT16: 2, DType.UINT32: 4,
}


class DeviceKind(enum.IntEnum):
    CPU = 0
    CUDA = 1


class Layout(enum.IntEnum):
    """The form of delivered rows."""

    BY_RANK = 0  # one row per (token, destination rank), sorted by (source rank, source token)
    BY_EXPERT = 1  # one row per (token, local expert), each expert's rows contiguous and aligned
    PADDED = 2  # [E_l, R*max_tokens, H]: expert e's valid rows are its first counts[e]


class Mode(enum.IntEnum):
    HIGH_THROUGHPUT = 0  # thousands of tokens
    LOW_LATENCY = 1  # at most a few hundred: rows leave before the counts are known


class Sizing(enum.IntEnum):
    EXACT = 0  # route() waits for the counts; outputs have exactly that many rows
    WORST_CASE = 1  # no host wait; outputs have the configured worst case, unused ids are -1


class Duplicates(enum.IntEnum):
    """What an expert named twice by one token is."""

    REFUSE = 0
    ACCEPT = 1


class Overflow(enum.IntEnum):
    """What happens to rows beyond max_recv_rows."""

    ERROR = 0
    DROP = 1


class Quantize(enum.IntEnum):
    """Conversion of bf16 rows on the way; one scale per 128 channels."""

    NONE = 0
    FP8 = 1  # fp8 e4m3, scales float32 [n, ceil(H/128)]
    FP8_UE8M0 = 2  # fp8 e4m3, scales int32 [n, ceil(H/512)] of four exponents each


class ScaleLayout(enum.IntEnum):
    ROW_MAJOR = 0
    COLUMN_MAJOR = 1  # element (row, s) at s * align(rows, 4) + row


class Gaps(enum.IntEnum):
    UNDEFINED = 0
    ZEROED = 1  # rows between experts and unused worst-case rows are zero-filled


class RowOrder(enum.IntEnum):
    """The order in which combine adds a token's rows; weighted sums always go by ascending k."""

    RANK_ASCENDING = 0
    HIGHEST_K_ASCENDING = 1


class Reduction(enum.IntEnum):
    """Where partial sums are rounded when a group spans nodes."""

    PER_NODE = 0
    PER_RANK = 1
    WIDE = 2
    EXACT = 3


class CombineForm(enum.IntEnum):
    AUTO = 0
    PULL = 1  # token owners read the peers' y, which lies in the arena
    PUSH = 2  # rows go to slots at the token's owner


class LowLatencyForm(enum.IntEnum):
    AUTO = 0
    PACKED = 1
    EXPAND = 2


_E = TypeVar("_E", bound=enum.IntEnum)


def to_enum(kind: Type[_E], name: str, value: Union[_E, int, str]) -> _E:
    """`value` as a member of `kind`; a name in any case is taken."""
    if type(value) is kind:
        return value
    try:
        if isinstance(value, str):
            return kind[value.upper().replace("-", "_")]
        return kind(value)
    except (KeyError, ValueError):
        names = ", ".join(member.name.lower() for member in kind)
        raise InvalidArgumentError(f"{name} is {value!r}, expected one of {names}") from None
