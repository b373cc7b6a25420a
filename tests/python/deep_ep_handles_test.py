"""Handles that outlive calls, autograd, buffers and threads; asynchronous chains."""

import threading
import unittest

import torch

from deep_ep_batches import Batch, assert_same, random_rows
from deep_ep_oracle import Oracle
from deep_ep_ranks import DEVICE, RankTest

MIB = 1 << 20


def make_buffer(ranks, **further):
    import deep_ep

    return deep_ep.Buffer(ranks.group, MIB, 0, **further)


class Exchanged(torch.autograd.Function):
    """Dispatch whose backward combines along the saved handle, as training programs do it."""

    @staticmethod
    def forward(ctx, x, weights, buffer, batch):
        recv_x, _, recv_weights, counts, handle, _ = buffer.dispatch(
            x, **{**batch.arguments(buffer), "topk_weights": weights})
        recv_x.requires_grad_()
        recv_weights.requires_grad_()
        ctx.save_for_backward(*handle)
        ctx.buffer = buffer
        return recv_x, recv_weights, handle

    @staticmethod
    def backward(ctx, grad_x, grad_weights, _):
        out, weights, _ = ctx.buffer.combine(
            grad_x.contiguous(), ctx.saved_tensors, topk_weights=grad_weights.float())
        return out, weights, None, None


class Returned(torch.autograd.Function):
    """Combine whose backward dispatches along the handle."""

    @staticmethod
    def forward(ctx, y, handle, buffer):
        ctx.save_for_backward(*handle)
        ctx.buffer = buffer
        return buffer.combine(y, handle=handle)[0]

    @staticmethod
    def backward(ctx, grad):
        result = ctx.buffer.dispatch(grad.contiguous(), handle=ctx.saved_tensors)
        assert result[1:5] == (None, None, None, None)
        return result[0], None, None


def check_autograd(ranks):
    buffer, batch = make_buffer(ranks), Batch(ranks, 6 + ranks.rank)
    x = batch.x.clone().requires_grad_()
    weights = batch.weights.clone().requires_grad_()
    recv_x, recv_weights, handle = Exchanged.apply(x, weights, buffer, batch)
    scale = recv_weights.sum(dim=1, keepdim=True)
    out = Returned.apply((recv_x * 2).to(torch.bfloat16), handle, buffer)
    (out.float().sum() + (scale * 3).sum()).backward()
    member = handle[4].sum(dim=1, keepdim=True)
    assert_same(x.grad, (member * 2).expand_as(x).to(torch.bfloat16).cpu())
    # Every rank of a token gives a gradient to every column, as DeepEP sums them.
    assert_same(weights.grad, (member * 3.0).expand_as(weights).float().cpu())


def check_interleaved(ranks):
    buffer = make_buffer(ranks)
    batches = [Batch(ranks, 5), Batch(ranks, 9)]
    results = [batch.dispatch(buffer) for batch in batches]
    oracles = [Oracle(ranks.gather(batch.topk), batch.num_experts) for batch in batches]

    def combine_is_right(which):
        x, handle = results[which][0], results[which][4]
        assert_same(buffer.combine(x, handle)[0],
                    oracles[which].combined(ranks.rank, ranks.gather(x)))

    combine_is_right(0)
    combine_is_right(1)
    again = buffer.dispatch(batches[0].x, handle=results[0][4])
    assert_same(again[0], results[0][0].cpu())
    combine_is_right(0)
    buffer = make_buffer(ranks)  # the handle of another buffer
    combine_is_right(0)
    assert_same(buffer.dispatch(batches[0].x, handle=results[0][4])[0], results[0][0].cpu())
    copied = tuple(item.clone() for item in results[1][4])  # as offloading leaves them
    assert_same(buffer.combine(results[1][0], copied)[0],
                oracles[1].combined(ranks.rank, ranks.gather(results[1][0])))


def check_more_handles_than_routes(ranks):
    """Ranks keep different handles alive, and must still agree which routes are made anew."""
    from deep_ep import _normal_exchange
    from deep_ep._routes import find_route

    usual, _normal_exchange._MOST_ROUTES = _normal_exchange._MOST_ROUTES, 6
    buffer = make_buffer(ranks)
    batch = Batch(ranks, 4)
    first = batch.dispatch(buffer)
    _normal_exchange._MOST_ROUTES = usual
    kept = [batch.dispatch(buffer) for _ in range(8)]
    for _ in range(20):
        result = batch.dispatch(buffer)
        if ranks.rank == 0:
            kept.append(result)
    assert find_route(first[4][0]).route is None
    for result in (first, kept[0], kept[7]):
        assert_same(buffer.combine(result[0], result[4])[0],
                    buffer.combine(first[0], first[4])[0].cpu())


def check_empty_rows(ranks):
    buffer = make_buffer(ranks)
    topk = torch.zeros((3, 1), dtype=torch.int64)  # all to rank 0
    batch = Batch(ranks, 3, topk=topk)
    x, _, _, counts, handle, _ = batch.dispatch(buffer)
    assert x.size(0) == (3 * ranks.num_ranks if ranks.rank == 0 else 0) == sum(counts)
    assert_same(buffer.combine(x[: x.size(0)], handle)[0], batch.x.cpu())


def check_asynchronous_chain(ranks):
    """capture, layout, dispatch, combine on the communication stream; inputs overwritten after the wait."""
    import deep_ep

    buffer = make_buffer(ranks)
    for seed in range(20):
        batch = Batch(ranks, 3 + (seed * 7 + ranks.rank) % 30)
        original = batch.x.clone()
        if ranks.device.type == "cuda":
            torch.cuda._sleep(1_000_000)
        flags = dict(async_finish=True, allocate_on_comm_stream=True)
        start = deep_ep.EventOverlap(deep_ep.EventHandle())
        layout, event = batch.layout(buffer, previous_event=start, **flags)
        x, idx, weights, counts, handle, event = buffer.dispatch(
            batch.x, **layout, topk_idx=batch.topk, topk_weights=batch.weights,
            previous_event=event, **flags)
        placeholder = deep_ep.EventOverlap(None)
        placeholder.event = event.event
        placeholder.current_stream_wait()
        batch.x.zero_()
        doubled = x * 2
        out, sums, event = buffer.combine(doubled, handle, topk_weights=weights,
                                          previous_event=buffer.capture(), **flags)
        event.current_stream_wait()
        doubled.zero_()
        expected = original.float() * handle[4].sum(dim=1, keepdim=True) * 2 + 0.0
        assert_same(out, expected.to(torch.bfloat16).cpu())


def check_several_in_flight(ranks):
    buffer = make_buffer(ranks)
    batches = [Batch(ranks, 4 + i) for i in range(4)]
    results = [batch.dispatch(buffer, async_finish=True) for batch in batches]
    for batch, result in zip(batches, results):
        result[5].current_stream_wait()
        oracle = Oracle(ranks.gather(batch.topk), batch.num_experts)
        assert_same(result[0], oracle.received(ranks.rank, ranks.gather(batch.x)))


def check_two_threads(ranks):
    """Two threads take turns on one buffer; low-latency hooks are called in the other's turn."""
    buffer = make_buffer(ranks, low_latency_mode=True)
    turns, failures = [threading.Event(), threading.Event()], []
    batches = [Batch(ranks, 8, hidden=256) for _ in range(2)]
    hooks, expected = {}, {}
    for index, batch in enumerate(batches):
        oracle = Oracle(ranks.gather(batch.topk), batch.num_experts)
        expected[index] = oracle.received(ranks.rank, ranks.gather(batch.x)), oracle

    def switch(index):
        turns[1 - index].set()
        assert turns[index].wait(30), "the other thread did not hand over"
        turns[index].clear()

    def run(index):
        try:
            assert turns[index].wait(30)
            turns[index].clear()
            batch = batches[index]
            for _ in range(5):
                x, _, _, _, handle, _ = batch.dispatch(buffer)
                assert_same(x, expected[index][0])
                switch(index)
                out = buffer.combine(x, handle)[0]
                member = handle[4].sum(dim=1, keepdim=True)
                assert_same(out, (batch.x.float() * member + 0.0).to(torch.bfloat16).cpu())
                *_, hook = rest = buffer.low_latency_dispatch(
                    batch.x, batch.topk, 8, batch.num_experts, use_fp8=False, return_recv_hook=True)
                hooks[index] = hook
                switch(index)
                hooks[1 - index]()
                switch(index)
                counts = expected[index][1].counts(ranks.rank)
                assert rest[1].tolist() == counts, (rest[1], counts)
        except BaseException as error:
            failures.append(error)
        finally:
            turns[1 - index].set()

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    turns[0].set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def check_graph(ranks):
    """Layout, dispatch with a fixed number of rows, combine and a cached dispatch in one CUDA graph."""
    buffer, batch = make_buffer(ranks), Batch(ranks, 9)

    def step():
        x, idx, _, _, handle, _ = batch.dispatch(buffer, num_worst_tokens=16 * ranks.num_ranks)
        return x, idx, buffer.combine(x, handle)[0], buffer.dispatch(batch.x, handle=handle)[0]

    step()
    refused = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(refused):
            batch.dispatch(buffer)
        raise RuntimeError("a dispatch that waits was captured")
    except AssertionError as error:
        assert "num_worst_tokens" in str(error), error
    torch.cuda.synchronize()
    ranks.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x, idx, out, again = step()
    for _ in range(10):
        other = Batch(ranks, 9)
        batch.x.copy_(other.x)
        batch.topk.copy_(other.topk)
        graph.replay()
        eager = other.dispatch(buffer)  # between two replays
        num_rows = eager[0].size(0)
        assert_same(x[:num_rows], eager[0].cpu())
        assert_same(again[:num_rows], eager[0].cpu())
        assert_same(idx[:num_rows], eager[1].cpu())
        assert bool((idx[num_rows:] == -1).all())
        assert_same(out, buffer.combine(eager[0], eager[4])[0].cpu())


def check_memory_does_not_grow(ranks):
    """Nothing of a call is kept: neither its tensors nor its routes."""
    import gc
    import sys

    buffer, batch = make_buffer(ranks), Batch(ranks, 4)
    result = batch.dispatch(buffer)
    assert sys.getrefcount(result[0]) == 2
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        result = batch.dispatch(buffer)
        buffer.combine(result[0], result[4])
    gc.collect()
    assert len(gc.get_objects()) - before < 150, len(gc.get_objects()) - before


class Handles(RankTest):
    def test_autograd_saves_a_handle_and_uses_it_for_both_gradients(self):
        self.check(check_autograd)

    def test_handles_are_interleaved_and_moved_to_another_buffer(self):
        self.check(check_interleaved)

    def test_there_can_be_more_handles_than_routes(self):
        self.check(check_more_handles_than_routes)

    def test_a_rank_without_rows_combines(self):
        self.check(check_empty_rows)

    def test_asynchronous_chains_wait_for_what_they_use(self):
        self.check(check_asynchronous_chain)

    def test_several_dispatches_are_in_flight(self):
        self.check(check_several_in_flight)

    def test_two_threads_take_turns_on_one_buffer(self):
        self.check(check_two_threads)

    @unittest.skipUnless(DEVICE == "cuda", "CUDA graphs need DEEP_EP_TEST_DEVICE=cuda")
    def test_a_normal_step_is_captured_and_replayed(self):
        self.check(check_graph)

    def test_a_call_keeps_nothing(self):
        self.check(check_memory_does_not_grow)
