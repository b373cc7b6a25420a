"""The options of dispatch and combine as structs."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Optional, Tuple, Union

from ._enums import CombineForm, Gaps, Quantize, ScaleLayout, to_enum
from ._structs import CombineOptionsStruct, DeliveryOutputsStruct, DispatchOptionsStruct
from ._tensors import to_packed, to_packed_or_none, to_packed_output


@dataclasses.dataclass
class DeliveryOutputs:
    """Caller memory for a delivery; what is not given is owned by the exchange. Dense tensors.
    Those in the arena (Exchange.allocate) are written directly by the peers, others are staged.
    """

    tokens: Any = None  # [>= n, H]; padded: [E_l, R*max_tokens, H]
    scales: Any = None  # [>= n, S], row-major
    topk_idx: Any = None  # by_rank: [>= n, K], dtype of the route's topk_idx
    topk_weights: Any = None  # by_rank: [>= n, K] float32; else [>= n] float32


def given_tensors(outputs: Optional[DeliveryOutputs]) -> Tuple[Any, ...]:
    if outputs is None:
        return ()
    return outputs.tokens, outputs.scales, outputs.topk_idx, outputs.topk_weights


def to_outputs(outputs: DeliveryOutputs) -> DeliveryOutputsStruct:
    return DeliveryOutputsStruct(
        tokens=to_packed_output("outputs.tokens", outputs.tokens),
        scales=to_packed_output("outputs.scales", outputs.scales),
        topk_idx=to_packed_output("outputs.topk_idx", outputs.topk_idx),
        topk_weights=to_packed_output("outputs.topk_weights", outputs.topk_weights))


def combine_options(topk_weights: Any, bias: Any, second_bias: Any, row_weights: Any,
                    combined_weights: Any, form: Union[CombineForm, str],
                    timeout_ms: int) -> CombineOptionsStruct:
    return CombineOptionsStruct(
        topk_weights=to_packed_or_none("topk_weights", topk_weights),
        bias=to_packed_or_none("bias", bias),
        second_bias=to_packed_or_none("second_bias", second_bias),
        row_weights=to_packed_or_none("row_weights", row_weights),
        combined_weights=to_packed_output("combined_weights", combined_weights),
        form=to_enum(CombineForm, "form", form), timeout_ms=timeout_ms)


def dispatch_options(topk_weights: Any, scales: Any, quantize: Union[Quantize, str],
                     scale_layout: Union[ScaleLayout, str], gaps: Union[Gaps, str],
                     scale_by_weights: bool, outputs: Optional[DeliveryOutputs],
                     timeout_ms: int) -> DispatchOptionsStruct:
    options = DispatchOptionsStruct()
    # Only what is given: each field that is set costs a part of a microsecond.
    if topk_weights is not None:
        options.topk_weights = to_packed("topk_weights", topk_weights)
    if scales is not None:
        options.scales = to_packed("scales", scales)
    if quantize is not Quantize.NONE:
        options.quantize = to_enum(Quantize, "quantize", quantize)
    if scale_layout is not ScaleLayout.ROW_MAJOR:
        options.scale_layout = to_enum(ScaleLayout, "scale_layout", scale_layout)
    if gaps is not Gaps.UNDEFINED:
        options.gaps = to_enum(Gaps, "gaps", gaps)
    if scale_by_weights:
        options.scale_by_weights = 1
    if timeout_ms:
        options.timeout_ms = timeout_ms
    if outputs is not None:
        options.outputs = ctypes.pointer(to_outputs(outputs))
    return options
