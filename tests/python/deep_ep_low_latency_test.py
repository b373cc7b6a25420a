"""Low-latency calls of deep_ep against the oracle: formats, flags, hooks, masks, mode switches."""

import unittest

import torch

import deep_ep_fp8
from deep_ep_batches import Batch, assert_same, random_topk, refuses
from deep_ep_oracle import Oracle
from deep_ep_ranks import DEVICE, RankTest

FORMATS = [(False, False, False), (True, False, False), (True, True, False), (True, True, True)]
FLAGS = [{}, {"async_finish": True}, {"return_recv_hook": True}]


def make_buffer(ranks, max_tokens=16, hidden=512, num_local=2, **further):
    import deep_ep

    num_bytes = deep_ep.Buffer.get_low_latency_rdma_size_hint(
        max_tokens, hidden, ranks.num_ranks, num_local * ranks.num_ranks)
    return deep_ep.Buffer(ranks.group, 1 << 20, num_bytes, low_latency_mode=True,
                          num_qps_per_rank=num_local, **further)


def make_batch(ranks, num_tokens, hidden=512, num_local=2, num_topk=3):
    batch = Batch(ranks, num_tokens, hidden=hidden, num_topk=num_topk, num_local=num_local)
    batch.x = torch.randn((num_tokens, hidden), dtype=torch.float32).to(torch.bfloat16).to(ranks.device)
    return batch


def finish(event, hook, flags):
    """What a client does before it reads, by the flags that it gave."""
    if flags.get("return_recv_hook"):
        assert callable(hook) and event.event is None
        hook()
    elif flags.get("async_finish"):
        assert hook is None
        event.current_stream_wait()
    else:
        assert hook is None and event.event is None


def check_rows(ranks, batch, max_tokens, row_format, result):
    recv_x, counts, handle = result[:3]
    use_fp8, round_scale, use_ue8m0 = row_format
    inputs = ranks.gather((batch.x, batch.topk))
    oracle = Oracle([topk for _, topk in inputs], batch.num_experts)
    rows_per_expert = ranks.num_ranks * max_tokens
    source_token, layout_range = handle[:2]
    assert handle[2:] == (max_tokens, batch.x.size(1), batch.num_experts)
    assert counts.dtype == torch.int32 and counts.tolist() == oracle.counts(ranks.rank)
    tokens = recv_x[0] if use_fp8 else recv_x
    assert isinstance(recv_x, tuple) == use_fp8 and tokens.is_contiguous()
    assert tokens.shape == (oracle.num_local, rows_per_expert, batch.x.size(1))
    if use_fp8:
        sent = [deep_ep_fp8.quantise(x, round_scale) for x, _ in inputs]
        assert len(recv_x) == 2 and tokens.dtype == getattr(torch, "float8_e4m3fn", torch.uint8)
        num_scales = -(-batch.x.size(1) // (512 if use_ue8m0 else 128))
        scales = recv_x[1]
        assert scales.shape == (oracle.num_local, rows_per_expert, num_scales)
        assert scales.stride() == (num_scales * rows_per_expert, 1, rows_per_expert)
        scales_of = [deep_ep_fp8.as_ue8m0(s) if use_ue8m0 else s for _, s in sent]
        values_of = [codes for codes, _ in sent]
        tokens = tokens.view(torch.uint8)
    else:
        values_of = [x for x, _ in inputs]
    for local in range(oracle.num_local):
        rows = oracle.expert_rows(ranks.rank, local)
        for source in range(ranks.num_ranks):
            begin, count = int(layout_range[local, source]) >> 32, int(layout_range[local, source]) & (2**32 - 1)
            mine = [token for one, token, _ in rows if one == source]
            assert count == len(mine)
            assert source_token[local, begin:begin + count].tolist() == mine
        if not rows:
            continue
        assert_same(tokens[local, : len(rows)], torch.stack([values_of[s][t] for s, t, _ in rows]))
        if use_fp8:
            assert_same(scales[local, : len(rows)], torch.stack([scales_of[s][t] for s, t, _ in rows]))


def weighted_sum(batch):
    """fp32, k ascending, each selection's row being the token itself."""
    x, topk, weights = batch.x.cpu().float(), batch.topk.cpu(), batch.weights.cpu()
    total = torch.zeros_like(x)
    for k in range(topk.size(1)):
        total = total + torch.where(topk[:, k:k + 1] >= 0, weights[:, k:k + 1], torch.zeros(1)) * x
    return total.to(torch.bfloat16)


def check_formats(ranks):
    for max_tokens, hidden, num_tokens in ((16, 2048, 16), (16, 512, (0, 1, 16, 5)[ranks.rank % 4])):
        buffer = make_buffer(ranks, max_tokens, hidden)
        batch = make_batch(ranks, num_tokens, hidden)
        for row_format in FORMATS:
            for flags in FLAGS:
                result = buffer.low_latency_dispatch(
                    batch.x, batch.topk, max_tokens, batch.num_experts, use_fp8=row_format[0],
                    round_scale=row_format[1], use_ue8m0=row_format[2], **flags)
                finish(*result[3:], flags)
                check_rows(ranks, batch, max_tokens, row_format, result)


def check_combine(ranks):
    buffer = make_buffer(ranks)
    batch = make_batch(ranks, (16, 0, 1, 9)[ranks.rank % 4])
    for flags in FLAGS:
        for is_zero_copy in (False, True):
            for has_out in (False, True):
                recv_x, counts, handle, _, _ = buffer.low_latency_dispatch(
                    batch.x, batch.topk, 16, batch.num_experts, use_fp8=False)
                y = recv_x.clone()
                for local, count in enumerate(counts.tolist()):
                    y[local, count:] = float("nan")  # unused rows are read by nobody
                if is_zero_copy:
                    buffer.get_next_low_latency_combine_buffer(handle)[:, :, :] = y
                    y = y.zero_()
                out = torch.full_like(batch.x, 7) if has_out else None
                result, event, hook = buffer.low_latency_combine(
                    y, batch.topk, batch.weights, handle, zero_copy=is_zero_copy, out=out, **flags)
                finish(event, hook, flags)
                assert_same(result, weighted_sum(batch))
                assert not has_out or result.data_ptr() == out.data_ptr()
    out = buffer.low_latency_combine(recv_x, batch.topk, batch.weights, handle, use_logfmt=True)[0]
    assert_same(out, weighted_sum(batch))


def check_two_in_flight(ranks):
    """Two micro-batches whose hooks are called late, and out of order."""
    buffer = make_buffer(ranks)
    batches = [make_batch(ranks, 16), make_batch(ranks, 7)]
    for order in ((0, 1), (1, 0)):
        results = [
            buffer.low_latency_dispatch(batch.x, batch.topk, 16, batch.num_experts, use_fp8=False,
                                        return_recv_hook=True) for batch in batches]
        for index in order:
            results[index][4]()
            results[index][4]()  # once is enough, twice is harmless
        sums = [
            buffer.low_latency_combine(result[0], batch.topk, batch.weights, result[2],
                                       return_recv_hook=True)
            for batch, result in zip(batches, results)]
        for index in order:
            sums[index][2]()
        for batch, result in zip(batches, sums):
            assert_same(result[0], weighted_sum(batch))


def check_results_are_kept(ranks):
    """More results than the buffer's memory has room for: each keeps its rows."""
    buffer, batches = make_buffer(ranks), [make_batch(ranks, 1 + i % 16) for i in range(30)]
    results = [buffer.low_latency_dispatch(batch.x, batch.topk, 16, batch.num_experts, use_fp8=False)
               for batch in batches]
    for batch, result in zip(batches, results):
        check_rows(ranks, batch, 16, FORMATS[0], result)
        assert_same(buffer.low_latency_combine(result[0], batch.topk, batch.weights, result[2])[0],
                    weighted_sum(batch))


def check_statistics(ranks):
    buffer, batch = make_buffer(ranks), make_batch(ranks, 12)
    received = torch.zeros(2, dtype=torch.int32, device=ranks.device)
    waits = [torch.zeros(ranks.num_ranks, dtype=torch.int64, device=ranks.device) for _ in range(2)]
    for times in (1, 2):
        recv_x, counts, handle, _, _ = buffer.low_latency_dispatch(
            batch.x, batch.topk, 16, batch.num_experts, use_fp8=False,
            cumulative_local_expert_recv_stats=received, dispatch_wait_recv_cost_stats=waits[0])
        buffer.low_latency_combine(recv_x, batch.topk, batch.weights, handle,
                                   combine_wait_recv_cost_stats=waits[1])
        assert received.tolist() == [count * times for count in counts.tolist()]
    assert all(int(wait.min()) >= 0 for wait in waits)


def check_mode_switches(ranks):
    buffer = make_buffer(ranks)
    buffer.clean_low_latency_buffer(16, 512, 2 * ranks.num_ranks)
    for turn in range(6):
        normal = make_batch(ranks, 3 + turn * ranks.rank)
        x, _, _, _, handle, _ = normal.dispatch(buffer)
        member = handle[4].sum(dim=1, keepdim=True)
        out = buffer.combine(x, handle)[0]
        error = (out.float() - normal.x.float() * member).abs().max() if out.numel() else 0
        assert error <= 0.1, error
        shape = (16, 512) if turn < 3 else (8, 256)
        buffer.clean_low_latency_buffer(*shape, 2 * ranks.num_ranks)
        buffer.clean_low_latency_buffer(*shape, 2 * ranks.num_ranks)
        for _ in range(2):
            batch = make_batch(ranks, 5 + turn % 3, hidden=shape[1])
            recv_x, _, handle, _, _ = buffer.low_latency_dispatch(
                batch.x, batch.topk, shape[0], batch.num_experts, use_fp8=False)
            assert_same(buffer.low_latency_combine(recv_x, batch.topk, batch.weights, handle)[0],
                        weighted_sum(batch))


def check_masks(ranks):
    """Ranks 0 and 1 do not hear of each other although only rank 0 masks rank 1."""
    buffer, batch = make_buffer(ranks, enable_shrink=True), make_batch(ranks, 10)
    status = torch.full((ranks.num_ranks,), 9, dtype=torch.int32, device=ranks.device)
    for is_masked in (False, True, False):
        if ranks.rank == 0 and is_masked:
            buffer.low_latency_update_mask_buffer(1, True)
        buffer.low_latency_query_mask_buffer(status)
        expected = [int(is_masked and ranks.rank == 0 and peer == 1) for peer in range(ranks.num_ranks)]
        assert status.tolist() == expected
        recv_x, counts, handle, _, _ = buffer.low_latency_dispatch(
            batch.x, batch.topk, 16, batch.num_experts, use_fp8=False)
        hidden_of = {0: 1, 1: 0}.get(ranks.rank) if is_masked else None
        topk_of = ranks.gather(batch.topk)
        if hidden_of is not None:
            topk_of[hidden_of] = torch.full_like(topk_of[hidden_of], -1)
        assert counts.tolist() == Oracle(topk_of, batch.num_experts).counts(ranks.rank)
        visible = make_batch(ranks, 10)
        is_apart = batch.topk // 2 == (-9 if hidden_of is None else hidden_of)
        visible.x, visible.weights = batch.x, batch.weights
        visible.topk = torch.where(is_apart, torch.full_like(batch.topk, -1), batch.topk)
        out = buffer.low_latency_combine(recv_x, batch.topk, batch.weights, handle)[0]
        assert_same(out, weighted_sum(visible))
        raw = buffer.get_local_buffer_tensor(torch.int8, use_rdma_buffer=True)
        raw.zero_()
        buffer.low_latency_clean_mask_buffer()
    plain = make_buffer(ranks)
    refuses(AssertionError, "enable_shrink", plain.low_latency_clean_mask_buffer)


def check_refusals(ranks):
    buffer, batch = make_buffer(ranks), make_batch(ranks, 12)
    call = buffer.low_latency_dispatch
    arguments = (batch.x, batch.topk, 16, batch.num_experts)
    refuses(AssertionError, "exclude each other", call, *arguments, async_finish=True,
            return_recv_hook=True)
    refuses(AssertionError, "use_ue8m0 needs round_scale", call, *arguments, use_ue8m0=True)
    refuses(AssertionError, "bfloat16", call, batch.x.float(), *arguments[1:])
    refuses(AssertionError, "multiple", call, *arguments[:3], batch.num_experts + 1)
    if ranks.device.type == "cpu":
        refuses(AssertionError, "topk_idx has 12 tokens, max_tokens is 8", call, *arguments[:2], 8,
                batch.num_experts)
    recv_x, _, handle, _, _ = call(*arguments, use_fp8=False)  # the group lives
    refuses(AssertionError, "expected a contiguous", buffer.low_latency_combine, recv_x[:, 1:],
            batch.topk, batch.weights, handle)
    refuses(AssertionError, "zero_copy", buffer.low_latency_combine, recv_x, batch.topk,
            batch.weights, handle, zero_copy=True)
    assert_same(buffer.low_latency_combine(recv_x, batch.topk, batch.weights, handle)[0],
                weighted_sum(batch))


def check_graphs(ranks):
    """Pairs captured once and thrice, replayed with new inputs, eager pairs between."""
    buffer = make_buffer(ranks)

    def pair(batch):
        recv_x, _, handle, _, hook = buffer.low_latency_dispatch(
            batch.x, batch.topk, 16, batch.num_experts, use_fp8=False, return_recv_hook=True)
        hook()
        return buffer.low_latency_combine(recv_x, batch.topk, batch.weights, handle)[0]

    batch = make_batch(ranks, 9)
    graph = torch.cuda.CUDAGraph()
    fresh = make_buffer(ranks)
    try:
        with torch.cuda.graph(graph):
            fresh.low_latency_dispatch(batch.x, batch.topk, 16, batch.num_experts)
        raise AssertionError("a buffer was made inside a capture")
    except AssertionError as error:
        assert "before the capture" in str(error), error
    ranks.barrier()
    assert_same(pair(batch), weighted_sum(batch))
    torch.cuda.synchronize()
    for num_pairs in (1, 3):
        graph = torch.cuda.CUDAGraph()
        ranks.barrier()
        with torch.cuda.graph(graph):
            outs = [pair(batch) for _ in range(num_pairs)]
        for _ in range(10):
            batch.x.copy_(torch.randn(batch.x.shape, device=ranks.device, dtype=torch.float32))
            batch.topk.copy_(random_topk(9, 3, batch.num_experts, 2))
            graph.replay()
            torch.cuda.synchronize()
            for out in outs:
                assert_same(out, weighted_sum(batch))
            buffer.clean_low_latency_buffer(16, 512, batch.num_experts)
            other = make_batch(ranks, 4)
            assert_same(pair(other), weighted_sum(other))


class LowLatency(RankTest):
    def test_rows_scales_counts_and_ranges_are_the_oracles(self):
        self.check(check_formats)

    def test_weighted_sums_are_exact_with_every_flag(self):
        self.check(check_combine)

    def test_two_batches_are_in_flight(self):
        self.check(check_two_in_flight)

    def test_results_are_kept_as_long_as_the_program_keeps_them(self):
        self.check(check_results_are_kept)

    def test_statistics_add_up(self):
        self.check(check_statistics)

    def test_modes_are_switched_on_one_buffer(self):
        self.check(check_mode_switches)

    def test_masked_peers_are_passed_over(self):
        self.check(check_masks)

    def test_wrong_calls_are_refused_with_the_reason(self):
        self.check(check_refusals)

    @unittest.skipUnless(DEVICE == "cuda", "CUDA graphs need DEEP_EP_TEST_DEVICE=cuda")
    def test_pairs_are_captured_and_replayed(self):
        self.check(check_graphs)
