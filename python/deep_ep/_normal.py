"""Normal dispatch and combine: rows sorted by source rank and token, one per (token, rank)."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

import ferry_ep
from deep_ep._normal_checks import (
    ROW_MULTIPLE_BYTES,
    Batch,
    check_batch,
    check_rows,
    check_sum,
)
from deep_ep._normal_exchange import Capacity, NormalExchange, spare_meta_bytes
from deep_ep._normal_handle import (
    Delivered,
    Handle,
    check_handle,
    keeper_of,
    make_internode_handle,
    make_intranode_handle,
    membership_of,
)
from deep_ep._refusal import require
from deep_ep._routes import KeptRoute, find_route
from deep_ep._row_meta import RowMeta
from deep_ep._streams import is_capturing


class Received(NamedTuple):
    x: torch.Tensor
    scales: Optional[torch.Tensor]
    topk_idx: Optional[torch.Tensor] = None
    topk_weights: Optional[torch.Tensor] = None
    num_tokens_per_expert: Optional[List[int]] = None
    handle: Optional[Handle] = None


class NormalMode:
    def __init__(self, exchange: NormalExchange, rank: int, num_ranks: int) -> None:
        self._exchange = exchange
        self._rank = rank
        self._num_ranks = num_ranks
        self._captured: List[Any] = []  # routes of graphs, which replay them for ever

    def dispatch(self, batch: Batch, num_sms: int) -> Received:
        num_experts = batch.num_tokens_per_expert.size(0)
        num_local = num_experts // self._num_ranks
        check_batch(batch, num_experts, self._num_ranks)
        meta = RowMeta(batch.scales, batch.topk_idx, batch.topk_weights)
        self._require_room(batch.x, meta, num_sms, (self._num_ranks + num_local) * 4)
        is_exact = batch.num_worst_tokens == 0
        if not is_exact:
            self._exchange.require_tokens(-(-batch.num_worst_tokens // self._num_ranks), num_sms)
        require(
            not (is_exact and is_capturing()),
            "dispatch waits on the host for the number of rows and cannot be captured into a CUDA "
            "graph; try: num_worst_tokens, or a dispatch along a handle",
        )
        between, per_expert = self._exchange_counts(batch, num_local)
        kept = self._make_route(batch.is_token_in_rank, batch.topk_idx, num_experts, is_exact)
        if not is_exact:
            kept.num_rows = batch.num_worst_tokens
        rows, words, delivery = self._move(kept, batch.x, meta)
        num_rows = None if is_exact else delivery.source_offsets[-1:]
        topk_idx, topk_weights = meta.unpack_topk(
            words, self._rank * num_local, num_local, num_rows
        )
        delivered = Delivered(
            between, delivery.row_source[: kept.num_rows], batch.is_token_in_rank, self._rank
        )
        make_handle = make_internode_handle if batch.is_internode else make_intranode_handle
        handle = make_handle(delivered, kept)
        align = batch.expert_alignment
        return Received(
            rows,
            meta.unpack_scales(words),
            topk_idx,
            topk_weights,
            ((per_expert + (align - 1)) // align * align).tolist() if is_exact else [],
            handle,
        )

    def dispatch_again(
        self, x: torch.Tensor, scales: Optional[torch.Tensor], handle: Handle, num_sms: int
    ) -> Received:
        """Moves other rows along the route of a handle."""
        check_handle(handle)
        require(
            x.size(0) == membership_of(handle).size(0),
            f"x has {x.size(0)} tokens, the handle is of {membership_of(handle).size(0)}",
        )
        check_rows(x, scales)
        meta = RowMeta(scales, None, None)
        self._require_room(x, meta, num_sms)
        kept = self._route_of(handle)
        rows, words, _ = self._move(kept, x, meta)
        return Received(rows, meta.unpack_scales(words))

    def combine(
        self,
        x: torch.Tensor,
        handle: Handle,
        topk_weights: Optional[torch.Tensor],
        bias: Sequence[torch.Tensor],
        num_sms: int,
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        check_handle(handle)
        num_tokens = membership_of(handle).size(0)
        check_sum(x, topk_weights, bias, num_tokens)
        row_bytes = x.size(1) * x.element_size()
        self._exchange.require_room(
            Capacity(x.size(1), row_bytes, spare_meta_bytes(x.size(1)), num_tokens), num_sms
        )
        kept = self._route_of(handle)
        require(
            x.size(0) == kept.num_rows,
            f"x has {x.size(0)} rows, the handle's dispatch delivered {kept.num_rows}",
        )
        out = torch.empty((num_tokens, x.size(1)), dtype=x.dtype, device=x.device)
        self._exchange.exchange.combine(
            kept.route,
            _with_rows(x, kept.num_output_rows),
            out,
            bias=bias[0] if bias else None,
            second_bias=bias[1] if len(bias) > 1 else None,
        )
        if topk_weights is None:
            return out, None
        return out, self._sum_weights(kept, topk_weights, num_tokens)

    def destroy(self) -> None:
        self._captured.clear()
        self._exchange.destroy()

    # ---- parts of the above -----------------------------------------------------------------------

    def _exchange_counts(
        self, batch: Batch, num_local: int
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """int32 [R, R] tokens between ranks and int32 [E_l] selections of each local expert."""
        per_rank = batch.num_tokens_per_rank.unsqueeze(0).expand(self._num_ranks, -1)
        per_expert = batch.num_tokens_per_expert.view(self._num_ranks, num_local)
        received = self._exchange.exchange_rows(torch.cat((per_rank, per_expert), dim=1))
        return (
            received[:, : self._num_ranks].contiguous(),
            received[:, self._num_ranks :].sum(dim=0, dtype=torch.int32),
        )

    def _make_route(
        self,
        is_token_in_rank: torch.Tensor,
        topk_idx: Optional[torch.Tensor],
        num_experts: int,
        is_exact: bool,
    ) -> KeptRoute:
        is_refused = None
        if topk_idx is not None:
            is_refused = ((topk_idx < -1) | (topk_idx >= num_experts)).any(dim=1)
        kept = KeptRoute()
        self._fill_route(kept, is_token_in_rank, is_exact, is_refused)
        return kept

    def _fill_route(
        self, kept: KeptRoute, is_token_in_rank: torch.Tensor, is_exact: bool, is_refused: Any = None
    ) -> None:
        sizing = "exact" if is_exact else "worst_case"
        kept.route = self._exchange.route(is_token_in_rank, sizing, is_refused)
        kept.owner = self._exchange.generation
        if is_exact:
            kept.num_rows = kept.num_output_rows = kept.route.num_recv_rows
        else:
            kept.num_output_rows = self._num_ranks * self._exchange.max_tokens
        self._exchange.shelf.put(kept)
        if is_capturing():
            self._captured.append(kept.route)

    def _route_of(self, handle: Handle) -> KeptRoute:
        """The handle's route; made anew where another buffer made it or it is an old one."""
        kept = find_route(keeper_of(handle)) or KeptRoute()
        if kept.route is not None and kept.owner is self._exchange.generation:
            return kept
        require(
            not is_capturing(),
            "the handle's route is to be made anew, which a CUDA graph cannot capture; try: a "
            "combine along the handle before the capture",
        )
        self._fill_route(kept, membership_of(handle), True)
        # A route combines only after something was dispatched along it.
        num_tokens = membership_of(handle).size(0)
        device = keeper_of(handle).device
        least = torch.zeros((num_tokens, ROW_MULTIPLE_BYTES), dtype=torch.uint8, device=device)
        self._move(kept, least, RowMeta(None, None, None))
        return kept

    def _move(
        self, kept: KeptRoute, x: torch.Tensor, meta: RowMeta
    ) -> Tuple[torch.Tensor, torch.Tensor, Any]:
        """Rows, their words and the delivery. Rows travel as bytes: any payload keeps its bits."""
        num_rows = max(kept.num_output_rows, kept.num_rows)
        rows = torch.empty((num_rows, x.size(1)), dtype=x.dtype, device=x.device)
        words = torch.empty((num_rows, meta.num_words), dtype=torch.int32, device=x.device)
        packed = meta.pack()
        delivery = self._exchange.exchange.dispatch(
            kept.route,
            x.view(torch.uint8),
            scales=packed,
            outputs=ferry_ep.DeliveryOutputs(
                tokens=rows.view(torch.uint8), scales=None if packed is None else words
            ),
        )
        return rows[: kept.num_rows], words[: kept.num_rows], delivery

    def _sum_weights(
        self, kept: KeptRoute, topk_weights: torch.Tensor, num_tokens: int
    ) -> torch.Tensor:
        """Column-wise sums over the destination ranks, as rows of their own."""
        num_topk = topk_weights.size(1)
        width = -(-num_topk // 4) * 4
        rows = torch.zeros(
            (kept.num_output_rows, width), dtype=torch.float32, device=topk_weights.device
        )
        num_rows = min(kept.num_output_rows, topk_weights.size(0))
        rows[:num_rows, :num_topk] = topk_weights[:num_rows]
        out = torch.empty((num_tokens, width), dtype=torch.float32, device=topk_weights.device)
        self._exchange.exchange.combine(kept.route, rows, out)
        return out[:, :num_topk].contiguous()

    def _require_room(
        self, x: torch.Tensor, meta: RowMeta, num_sms: int, least_row_bytes: int = 0
    ) -> None:
        row_bytes = max(x.size(1) * x.element_size(), least_row_bytes + ROW_MULTIPLE_BYTES)
        meta_bytes = max(meta.num_words * 4, spare_meta_bytes(x.size(1)))
        self._exchange.require_room(
            Capacity(x.size(1), row_bytes, meta_bytes, x.size(0)), num_sms
        )


def _with_rows(x: torch.Tensor, num_rows: int) -> torch.Tensor:
    """x with at least ``num_rows`` rows; what is added is never summed."""
    if x.size(0) >= num_rows:
        return x
    longer = torch.empty((num_rows, x.size(1)), dtype=x.dtype, device=x.device)
    longer[: x.size(0)] = x
    return longer
