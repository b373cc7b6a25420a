"""Dispatch and combine as differentiable PyTorch functions.

    rows, row_weights, delivery = autograd.dispatch(exchange, route, x, weights)
    out = autograd.combine(exchange, route, run_experts(rows), weights)

Gradients flow to x, to the expert rows, and to the top-k weights. Backward moves rows along the same
route: that of dispatch is a combine, that of combine a dispatch. Like forward, backward is collective:
every rank runs it, in the same order, which equal models on all ranks do by themselves.

The tensors belong to torch and stay valid for the whole step; the exchange's own memory would be
reused by the fourth dispatch. Sums are the library's: the same inputs give the same bits on every run,
with torch.use_deterministic_algorithms or without.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from ._enums import Gaps, Layout, Sizing
from ._exchange import Exchange
from ._options import DeliveryOutputs
from ._results import Delivery, Route


def dispatch(exchange: Exchange, route: Route, x: torch.Tensor,
             topk_weights: Optional[torch.Tensor] = None) -> Tuple[Any, Any, Delivery]:
    """The rows of x [T, H] at their experts, [n, H], the weights beside them and the delivery.

    Weights: by_rank [n, K], by_expert [n], padded [E_l, R*max_tokens]; None without topk_weights.
    Rows between experts are zero. The delivery's other tensors (counts, topk_idx, offsets) are valid
    as usual, until the fourth dispatch after.
    """
    results: list[Delivery] = []
    rows, row_weights = _Dispatch.apply(exchange, route, results, x, topk_weights)
    return rows, row_weights, results[0]


def combine(exchange: Exchange, route: Route, y: torch.Tensor,
            topk_weights: Optional[torch.Tensor] = None) -> Any:
    """out [T, H]: the sum of each token's rows of y, weighted by topk_weights [T, K] where given
    (which needs one row per expert: by_expert or padded).
    """
    return _Combine.apply(exchange, route, y, topk_weights)


def _deliver(exchange: Exchange, route: Route, x: torch.Tensor,
             topk_weights: Optional[torch.Tensor]) -> Tuple[Any, Any, Delivery]:
    """A dispatch whose rows and weights are torch's. In exact sizing the rows go straight there."""
    options: Any = {"topk_weights": topk_weights, "gaps": Gaps.ZEROED}
    if route.layout is Layout.PADDED or route.sizing is Sizing.WORST_CASE:
        delivery = exchange.dispatch(route, x, **options)
        weights = delivery.topk_weights
        rows = delivery.tokens.clone()
        return rows, None if weights is None else _used(delivery, weights.clone()), delivery
    rows = x.new_empty((route.num_recv_rows, x.shape[1]))
    weights = None
    if topk_weights is not None:
        by_rank = route.layout is Layout.BY_RANK
        shape = (len(rows), topk_weights.shape[1]) if by_rank else (len(rows),)
        weights = topk_weights.new_empty(shape)
    outputs = DeliveryOutputs(tokens=rows, topk_weights=weights)
    delivery = exchange.dispatch(route, x, outputs=outputs, **options)
    return rows, None if weights is None else _used(delivery, weights), delivery


def _used(delivery: Delivery, weights: Any) -> Any:
    """Weights with zeros where no row lies: those of unused rows are whatever was there."""
    row_expert = delivery.row_expert
    if row_expert is None:
        return weights.masked_fill_(delivery.topk_idx < 0, 0)
    return weights.masked_fill_(row_expert < 0, 0)


class _Dispatch(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, exchange: Exchange, route: Route, results: Any, x: torch.Tensor,
                topk_weights: Optional[torch.Tensor]) -> Any:
        rows, weights, delivery = _deliver(exchange, route, x, topk_weights)
        results.append(delivery)
        ctx.exchange, ctx.route = exchange, route
        ctx.has_weights = weights is not None
        return rows, weights

    @staticmethod
    def backward(ctx: Any, grad_rows: Any, grad_weights: Any) -> Any:
        # Every rank issues both operations whatever its own need, so that all issue the same.
        grad_x = ctx.exchange.combine(ctx.route, grad_rows.contiguous())
        grad_topk = None
        if ctx.has_weights:
            grad_topk = ctx.exchange.combine_weights(ctx.route, grad_weights.contiguous())
        return None, None, None, grad_x, grad_topk


class _Combine(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, exchange: Exchange, route: Route, y: torch.Tensor,
                topk_weights: Optional[torch.Tensor]) -> Any:
        ctx.exchange, ctx.route = exchange, route
        if topk_weights is None:
            ctx.save_for_backward()
        else:
            ctx.save_for_backward(y, topk_weights)
        return exchange.combine(route, y.contiguous(), topk_weights=topk_weights)

    @staticmethod
    def backward(ctx: Any, grad_out: Any) -> Any:
        grad_out = grad_out.contiguous()
        if not ctx.saved_tensors:
            rows, _, _ = _deliver(ctx.exchange, ctx.route, grad_out, None)
            return None, None, rows, None
        y, topk_weights = ctx.saved_tensors
        rows, row_weights, _ = _deliver(ctx.exchange, ctx.route, grad_out, topk_weights)
        # d(w * y): w * grad for the row, the dot product of both for its weight, in fp32.
        grad_y = (rows.float() * row_weights.unsqueeze(-1)).to(y.dtype)
        dots = (rows.float() * y.float()).sum(-1)
        grad_weights = ctx.exchange.combine_weights(ctx.route, dots)
        return None, None, grad_y, grad_weights


__all__ = ["combine", "dispatch"]
