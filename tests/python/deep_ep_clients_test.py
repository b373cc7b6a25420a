"""The call sequences of known programs, argument for argument, and what each does with the results."""

import torch

from deep_ep_batches import Batch, assert_same
from deep_ep_ranks import RankTest

MIB = 1 << 20


def combined_as_sent(batch, member):
    """What comes back when experts do nothing: the token times its ranks, +0 where there is none."""
    return (batch.x.float() * member.sum(dim=1, keepdim=True) + 0.0).to(torch.bfloat16).cpu()


def weighted_as_sent(batch):
    weights = torch.where(batch.topk >= 0, batch.weights, torch.zeros_like(batch.weights))
    return batch.x.float() * weights.sum(dim=1, keepdim=True)


def low_latency_bytes(ranks, max_tokens, hidden, num_experts):
    from deep_ep import Buffer

    return Buffer.get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank=max_tokens, hidden=hidden, num_ranks=ranks.num_ranks,
        num_experts=num_experts)


def vllm_high_throughput(ranks):
    import deep_ep

    deep_ep.Buffer.set_num_sms(20)
    buffer = deep_ep.Buffer(group=ranks.group, num_nvl_bytes=1024 * MIB, num_rdma_bytes=0,
                            low_latency_mode=False, num_qps_per_rank=1, explicitly_destroy=True)
    batch = Batch(ranks, 6, hidden=256)
    for is_micro_batching in (False, True):
        event = buffer.capture() if is_micro_batching else None
        per_rank, per_node, per_expert, member, event = buffer.get_dispatch_layout(
            topk_idx=batch.topk, num_experts=batch.num_experts, previous_event=event,
            async_finish=False, allocate_on_comm_stream=False)
        result = buffer.dispatch(
            x=batch.x, handle=None, num_tokens_per_rank=per_rank, num_tokens_per_rdma_rank=per_node,
            is_token_in_rank=member, num_tokens_per_expert=per_expert, topk_idx=batch.topk,
            topk_weights=batch.weights, expert_alignment=1, config=None, previous_event=event,
            async_finish=not is_micro_batching, allocate_on_comm_stream=False)
        x, idx, weights, counts, handle, event = result
        if event.event is not None:
            event.current_stream_wait()
        first = ranks.rank * batch.num_experts // ranks.num_ranks
        assert not bool((torch.where(idx == -1, 0, idx + first) >= batch.num_experts).any())
        assert torch.tensor(counts, dtype=torch.int32).sum() == (idx >= 0).sum().cpu()
        out, _, event = buffer.combine(x=x, handle=handle, topk_weights=None, config=None,
                                       previous_event=None, async_finish=not is_micro_batching,
                                       allocate_on_comm_stream=False)
        if event.event is not None:
            event.current_stream_wait()
        assert_same(torch.empty_like(out).copy_(out), combined_as_sent(batch, member))
    buffer.destroy()


def vllm_low_latency(ranks):
    import deep_ep

    num_experts = 2 * ranks.num_ranks
    buffer = deep_ep.Buffer(
        group=ranks.group, num_nvl_bytes=MIB, low_latency_mode=True, num_qps_per_rank=2,
        num_rdma_bytes=low_latency_bytes(ranks, 8, 512, num_experts),
        allow_nvlink_for_low_latency_mode=True, allow_mnnvl=False, explicitly_destroy=True)
    batch = Batch(ranks, 5, hidden=512, num_topk=2, num_local=2)
    recv_x, counts, handle, _, hook = buffer.low_latency_dispatch(
        batch.x, batch.topk, 8, num_experts, use_fp8=False, round_scale=False, use_ue8m0=False,
        async_finish=False, return_recv_hook=True)
    hook()
    out = torch.empty_like(batch.x)
    _, _, hook = buffer.low_latency_combine(
        recv_x, batch.topk, batch.weights, handle, async_finish=False, zero_copy=False,
        return_recv_hook=False, out=out)
    assert hook is None
    assert torch.allclose(out.float(), weighted_as_sent(batch), rtol=1e-2)
    buffer.destroy()


def sglang(ranks):
    """Normal mode with the layout's event, then low latency, on one buffer that nobody destroys."""
    from deep_ep import Buffer, Config

    config = Config(**{"num_sms": 24, "num_max_nvl_chunked_send_tokens": 8,
                       "num_max_nvl_chunked_recv_tokens": 256})
    num_experts, hidden = 4 * ranks.num_ranks, 512
    tuned = [Buffer.get_dispatch_config(4), Buffer.get_combine_config(4), config]
    nvl = max(one.get_nvl_buffer_size_hint(hidden, ranks.num_ranks) for one in tuned)
    rdma = Buffer.get_low_latency_rdma_size_hint(8, hidden, ranks.num_ranks, num_experts)
    buffer = Buffer(ranks.group, nvl, rdma, low_latency_mode=True, num_qps_per_rank=20,
                    allow_mnnvl=True)
    assert buffer.low_latency_mode and buffer.group_size == ranks.num_ranks
    batch = Batch(ranks, 6, hidden=hidden)
    event = Buffer.capture()
    per_rank, per_node, per_expert, member, event = buffer.get_dispatch_layout(
        batch.topk, num_experts, previous_event=event, async_finish=True,
        allocate_on_comm_stream=event is not None)
    scales = torch.arange(6 * 2, dtype=torch.int32, device=ranks.device).view(2, 6).t()
    (x, recv_scales), idx, weights, counts, handle, event = buffer.dispatch(
        (batch.x.view(torch.uint8), scales), topk_idx=batch.topk, topk_weights=batch.weights,
        num_tokens_per_rank=per_rank, num_tokens_per_rdma_rank=per_node, is_token_in_rank=member,
        num_tokens_per_expert=per_expert, previous_event=event, async_finish=True,
        allocate_on_comm_stream=True, expert_alignment=128, config=config)
    event.current_stream_wait()
    assert sum(counts) % 128 == 0 and idx.stride(-1) == 1 and recv_scales.dtype == torch.int32
    event = Buffer.capture()
    out, _, event = buffer.combine(x.view(torch.bfloat16), handle, async_finish=True,
                                   previous_event=event, allocate_on_comm_stream=True, config=config)
    event.current_stream_wait()
    assert_same(out, combined_as_sent(batch, member))
    buffer.clean_low_latency_buffer(8, hidden, num_experts)
    recv_x, counts, handle, event, hook = buffer.low_latency_dispatch(
        batch.x, batch.topk.to(torch.int64), 8, num_experts, use_fp8=True,
        async_finish=True, return_recv_hook=False)
    event.current_stream_wait()
    assert counts.dtype == torch.int32 and recv_x[1].stride(1) == 1
    recv_x[0].set_(torch.empty(0, dtype=recv_x[0].dtype, device=ranks.device))  # disposed of
    y = torch.zeros((4, 8 * ranks.num_ranks, hidden), dtype=torch.bfloat16, device=ranks.device)
    out, _, _ = buffer.low_latency_combine(y, batch.topk, batch.weights, handle)
    assert not bool(out.any())


def megatron(ranks):
    """Forward and backward with virtual experts; the buffer is replaced by a larger one between."""
    from deep_ep import Buffer
    from deep_ep.utils import EventHandle, EventOverlap

    Buffer.set_num_sms(20)
    buffer = Buffer(ranks.group, MIB, 0)
    topk = torch.randint(0, 2 * ranks.num_ranks, (6, 1)).repeat(1, 2) * 2
    topk[:, 1] += 1
    batch = Batch(ranks, 6, num_local=4, topk=topk)
    event = EventOverlap(EventHandle())
    per_rank, per_node, per_expert, member, event = buffer.get_dispatch_layout(
        batch.topk, batch.num_experts, previous_event=event, async_finish=True,
        allocate_on_comm_stream=True)
    x, idx, weights, counts, handle, after = buffer.dispatch(
        batch.x, topk_idx=batch.topk, topk_weights=batch.weights, num_tokens_per_rank=per_rank,
        num_tokens_per_rdma_rank=per_node, is_token_in_rank=member, num_tokens_per_expert=per_expert,
        previous_event=event, async_finish=True, allocate_on_comm_stream=True)
    after.current_stream_wait()
    assert int(torch.tensor(counts, dtype=torch.int64).sum()) == int((idx >= 0).sum())
    assert type(handle) is not torch.Tensor
    buffer = Buffer(ranks.group, 2 * MIB, 0)
    out, _, event = buffer.combine(x, handle=handle, async_finish=True,
                                   previous_event=EventOverlap(EventHandle()),
                                   allocate_on_comm_stream=True)
    event.current_stream_wait()
    assert_same(out, combined_as_sent(batch, member))
    grad, *nothing, event = buffer.dispatch(
        out, handle=handle, previous_event=EventOverlap(EventHandle()), async_finish=True,
        allocate_on_comm_stream=True)
    event.current_stream_wait()
    assert nothing == [None] * 4 and grad.shape == x.shape
    grad_x, grad_weights, event = buffer.combine(
        grad, handle, topk_weights=weights.float(), previous_event=EventOverlap(None))
    assert event.event is None and grad_weights.shape == batch.weights.shape


def xtuner(ranks):
    from deep_ep import Buffer, EventOverlap
    from deep_ep_cpp import EventHandle

    buffer = Buffer(ranks.group, MIB, low_latency_bytes(ranks, 8, 64, 8 * ranks.num_ranks),
                    low_latency_mode=True, num_qps_per_rank=max(8, Buffer.num_sms // 2))
    assert buffer.num_nvl_bytes >= MIB
    batch = Batch(ranks, 7)
    events = {"before": EventOverlap(EventHandle()), "after": EventOverlap(None)}
    per_rank, per_node, per_expert, member, event = buffer.get_dispatch_layout(
        batch.topk, batch.num_experts, previous_event=events["before"], async_finish=True,
        allocate_on_comm_stream=events["before"] is not None)
    x, idx, weights, counts, handle, event = buffer.dispatch(
        batch.x, topk_idx=batch.topk, topk_weights=batch.weights, num_tokens_per_rank=per_rank,
        num_tokens_per_rdma_rank=per_node, is_token_in_rank=member, num_tokens_per_expert=per_expert,
        previous_event=event, async_finish=True, allocate_on_comm_stream=True)
    events["after"].event = event.event
    events["after"].current_stream_wait()
    x.requires_grad_()
    weights.requires_grad_()
    assert int((idx == -1).sum()) == idx.numel() - sum(counts)
    with torch.no_grad():
        out, sums, event = buffer.combine(x.detach(), handle, weights.detach(), async_finish=True,
                                          previous_event=Buffer.capture(),
                                          allocate_on_comm_stream=True)
    event.current_stream_wait()
    assert_same(out, combined_as_sent(batch, member))


def tensorrt_llm(ranks):
    """mpi4py's words instead of a group, 32-bit ids, opaque payloads, a dummy row."""
    from deep_ep import Buffer

    class Communicator:
        Get_rank = staticmethod(lambda: ranks.rank)
        Get_size = staticmethod(lambda: ranks.num_ranks)
        allgather = staticmethod(ranks.gather)

    buffer = Buffer(None, MIB, 0, comm=Communicator())
    batch = Batch(ranks, 4, topk=torch.full((4, 2), 1, dtype=torch.int32))
    per_rank, per_node, per_expert, member, _ = buffer.get_dispatch_layout(batch.topk, 4 * ranks.num_ranks)
    x, idx, _, _, handle, event = buffer.dispatch(
        batch.x, num_tokens_per_rank=per_rank, num_tokens_per_rdma_rank=per_node,
        is_token_in_rank=member, num_tokens_per_expert=per_expert, topk_idx=batch.topk,
        topk_weights=batch.weights)
    assert event.event is None and idx.dtype == torch.int32
    num_rows = x.size(0)
    padded = x if num_rows else x.new_zeros((1, 64))
    out, _, _ = buffer.combine(padded[:num_rows], handle)
    assert_same(out, combined_as_sent(batch, member))
    del buffer
    buffer = Buffer(None, 0, MIB, low_latency_mode=True, num_qps_per_rank=4, comm=Communicator())
    batch = Batch(ranks, 4, hidden=512, num_topk=2)
    recv_x, counts, handle, event, hook = buffer.low_latency_dispatch(
        batch.x, batch.topk.to(torch.int32), 8, batch.num_experts, use_fp8=False)
    assert event.event is None and hook is None
    out, event, hook = buffer.low_latency_combine(recv_x, batch.topk.to(torch.int32), batch.weights,
                                                  handle)
    assert event.event is None and hook is None
    assert torch.allclose(out.float(), weighted_as_sent(batch), rtol=1e-2)


def lmdeploy_and_lightllm(ranks):
    from deep_ep import Buffer

    num_experts = 2 * ranks.num_ranks
    buffer = Buffer(ranks.group, num_nvl_bytes=int(1e9), low_latency_mode=True, num_qps_per_rank=24,
                    num_rdma_bytes=low_latency_bytes(ranks, 8, 512, num_experts), allow_mnnvl=True)
    buffer.set_num_sms(20)
    batch = Batch(ranks, 5, hidden=512, num_topk=2, num_local=2)
    for is_async in (False, True):
        event = buffer.capture() if is_async else None
        flags = dict(previous_event=event, async_finish=is_async,
                     allocate_on_comm_stream=event is not None and is_async)
        per_rank, per_node, per_expert, member, event = buffer.get_dispatch_layout(
            batch.topk, num_experts=num_experts, **flags)
        flags["previous_event"] = event
        x, _, _, counts, handle, event = buffer.dispatch(
            batch.x, topk_idx=batch.topk, topk_weights=batch.weights, num_tokens_per_rank=per_rank,
            num_tokens_per_rdma_rank=per_node, is_token_in_rank=member,
            num_tokens_per_expert=per_expert, expert_alignment=128, **flags)
        if is_async:
            event.current_stream_wait()
        out, _, event = buffer.combine(x, handle, previous_event=event, async_finish=is_async)
        if is_async:
            event.current_stream_wait()
        assert_same(out, combined_as_sent(batch, member))
    buffer.clean_low_latency_buffer(8, 512, num_experts)
    recv_x, counts, handle, _, hook = buffer.low_latency_dispatch(
        batch.x, batch.topk, 8, num_experts, use_fp8=True, async_finish=False, return_recv_hook=False)
    assert hook is None and len([one for one in recv_x]) == 2


def prime_rl_and_slime(ranks):
    """Chunks in flight, one padded; two dispatches of different width with the same row order."""
    import deep_ep

    original, sizes = deep_ep.Buffer.__init__, []

    def wrapped(self, *arguments, **named):
        sizes.append(arguments[1])
        original(self, *arguments, **named)

    deep_ep.Buffer.__init__ = wrapped
    try:
        buffer = deep_ep.Buffer(ranks.group, MIB, 0)
    finally:
        deep_ep.Buffer.__init__ = original
    assert sizes == [MIB]
    chunks = [Batch(ranks, max(num_tokens, 1)) for num_tokens in (4, 0, 7)]
    results = [chunk.dispatch(buffer, async_finish=True) for chunk in chunks]
    for chunk, result in zip(chunks, results):
        result[5].current_stream_wait()
        handle = result[4]
        assert isinstance(handle, tuple) and len(handle) in (6, 10)
        assert handle[3].shape[0] == result[0].size(0)
        record = chunk.x[:, :16].contiguous()
        narrow = buffer.dispatch(record, **chunk.arguments(buffer))[0]
        assert_same(narrow, result[0][:, :16].cpu())


class Clients(RankTest):
    def test_vllm_high_throughput(self):
        self.check(vllm_high_throughput)

    def test_vllm_low_latency(self):
        self.check(vllm_low_latency)

    def test_sglang(self):
        self.check(sglang)

    def test_megatron(self):
        self.check(megatron)

    def test_xtuner(self):
        self.check(xtuner)

    def test_tensorrt_llm(self):
        self.check(tensorrt_llm)

    def test_lmdeploy_and_lightllm(self):
        self.check(lmdeploy_and_lightllm)

    def test_prime_rl_and_slime(self):
        self.check(prime_rl_and_slime)
