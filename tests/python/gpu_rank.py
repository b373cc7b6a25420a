"""One rank of gpu_test.py: CUDA tensors of every framework that is there, checked with NumPy.

    gpu_rank.py RANK SIZE ADDRESS
"""

import gc
import sys

import numpy as np
import torch

import ferry_ep
from ferry_ep import autograd
from oracle import Oracle

HIDDEN, EXPERTS, TOP_K, MAX_TOKENS = 512, 16, 4, 64
DEVICE = torch.device("cuda", 0)


def make_batch(size, seed):
    """topk, x (bf16 bits of small integers, so that sums are exact) and weights of every rank."""
    rng = np.random.default_rng(seed)
    batch = []
    for rank in range(size):
        num_tokens = 10 + 7 * rank
        topk = np.argsort(rng.random((num_tokens, EXPERTS)), 1)[:, :TOP_K].astype(np.int64)
        topk[rng.random(topk.shape) < 0.1] = -1
        x = rng.integers(-8, 9, (num_tokens, HIDDEN)).astype(np.float32)
        weights = rng.integers(1, 5, (num_tokens, TOP_K)).astype(np.float32) / 4
        batch.append((topk, x, weights))
    return batch


def on_gpu(array, dtype=None):
    tensor = torch.from_numpy(array).to(DEVICE)
    return tensor if dtype is None else tensor.to(dtype)


def check_equal(name, got, expected):
    got = got.float().cpu().numpy() if isinstance(got, torch.Tensor) else np.asarray(got)
    assert got.shape == expected.shape and np.array_equal(got, expected), (name, got, expected)


def make_exchange(group, **fields):
    return ferry_ep.Exchange(group, num_experts=EXPERTS, top_k=TOP_K, hidden=HIDDEN,
                             max_tokens=MAX_TOKENS, device=DEVICE, num_sms=8, **fields)


def check_high_throughput(group):
    rank = group.rank
    batch = make_batch(group.size, 1)
    oracle = Oracle([topk for topk, _, _ in batch], EXPERTS)
    topk, x, weights = batch[rank]
    by_rank = np.array([batch[source][1][token] for source, token in oracle.by_rank(rank)])
    by_expert = [(batch[source][1][token], batch[source][2][token, k])
                 for source, token, k in oracle.by_expert(rank)]
    times = oracle.num_destinations(rank)[:, None]
    chosen = np.where(topk >= 0, weights, 0).sum(1)[:, None]

    exchange = make_exchange(group, layout="by_expert")
    side = torch.cuda.Stream()
    for stream in (None, side, side.cuda_stream):
        rows_x = on_gpu(x, torch.bfloat16)
        torch.cuda.synchronize()
        route = exchange.route(on_gpu(topk), layout="by_rank", stream=stream)
        delivery = exchange.dispatch(route, rows_x, topk_weights=on_gpu(weights), stream=stream)
        assert delivery.tokens.dtype is torch.bfloat16 and delivery.tokens.device == DEVICE
        out = exchange.combine(route, delivery.tokens, stream=stream)
        torch.cuda.synchronize()
        check_equal("by_rank", delivery.tokens, by_rank)
        check_equal("topk_idx", delivery.topk_idx.cpu(), oracle.local_topk(rank))
        check_equal("combine", out, x * times)

    route = exchange.route(on_gpu(topk))
    delivery = exchange.dispatch(route, on_gpu(x, torch.bfloat16), topk_weights=on_gpu(weights))
    y = exchange.allocate(delivery.tokens.shape, torch.bfloat16)
    y.copy_(delivery.tokens)
    out = exchange.combine(route, y, topk_weights=on_gpu(weights))
    again = exchange.combine(route, y, topk_weights=on_gpu(weights), form="push")
    torch.cuda.synchronize()
    check_equal("by_expert", delivery.tokens, np.array([row for row, _ in by_expert]))
    check_equal("row weights", delivery.topk_weights, np.array([w for _, w in by_expert], np.float32))
    check_equal("weighted", out, x * chosen)
    assert torch.equal(out, again)
    assert sum(route.expert_counts) == len(by_expert) == int(delivery.num_rows)

    quantized = exchange.dispatch(route, on_gpu(x, torch.bfloat16), quantize="fp8")
    assert quantized.tokens.dtype is torch.float8_e4m3fn
    values = quantized.tokens.float() * quantized.scales.repeat_interleave(128, 1)
    assert (values.cpu() - delivery.tokens.float().cpu()).abs().max() < 0.3

    group.barrier()
    tokens = delivery.tokens  # outlives its exchange
    exchange.check()
    exchange.destroy()
    check_equal("after destroy", tokens, np.array([row for row, _ in by_expert]))
    del tokens, delivery, quantized, y
    gc.collect()


def check_other_frameworks(group):
    import cupy

    topk, x, _ = make_batch(group.size, 2)[group.rank]
    times = Oracle([topk for topk, _, _ in make_batch(group.size, 2)], EXPERTS).num_destinations(
        group.rank)[:, None]

    class Dlpack:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    with make_exchange(group, dtype="fp32") as exchange:
        for convert in (cupy.asarray, lambda a: Dlpack(on_gpu(a))):
            rows, ids = convert(x), convert(topk)
            torch.cuda.synchronize()
            route = exchange.route(ids)
            delivery = exchange.dispatch(route, rows)
            out = torch.empty(x.shape, device=DEVICE)
            exchange.combine(route, delivery.tokens, out)
            torch.cuda.synchronize()
            check_equal(type(rows).__name__, out, x * times)
        assert isinstance(delivery.tokens, ferry_ep.Tensor)
        shared = torch.from_dlpack(delivery.tokens)
        assert shared.data_ptr() == delivery.tokens.data_ptr
        try:
            exchange.dispatch(route, x)
        except ferry_ep.InvalidArgumentError as error:
            assert "x is" in str(error) and "lies on the CPU, expected cuda:0" in str(error), error
        else:
            raise AssertionError("a CPU tensor was taken")


def check_graph(group):
    """Low latency in a CUDA graph, replayed with new inputs."""
    rank = group.rank
    batches = [make_batch(group.size, seed) for seed in (3, 4, 5)]
    topk, x, weights = (on_gpu(part) for part in batches[0][rank])
    x = x.to(torch.bfloat16)
    with make_exchange(group, mode="low_latency", layout="padded") as exchange:
        def step():
            route = exchange.route(topk, sizing="worst_case")
            delivery = exchange.dispatch(route, x)
            out = exchange.combine(route, delivery.tokens, topk_weights=weights)
            return route, delivery, delivery.expert_counts, out

        step()
        torch.cuda.synchronize()
        group.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = step()
        for batch in batches:
            topk.copy_(torch.from_numpy(batch[rank][0]))
            x.copy_(torch.from_numpy(batch[rank][1]))
            weights.copy_(torch.from_numpy(batch[rank][2]))
            graph.replay()
            torch.cuda.synchronize()
            exchange.check()
            chosen = np.where(batch[rank][0] >= 0, batch[rank][2], 0).sum(1)[:, None]
            check_equal("graph", kept[3], batch[rank][1] * chosen)
            rows = Oracle([ids for ids, _, _ in batch], EXPERTS).by_expert(rank)
            assert int(kept[2].sum()) == len(rows)
        group.barrier()


def check_gradients(group):
    """Worst-case sizing on the GPU: nothing waits for the host, and gradients are exact integers."""
    batch = make_batch(group.size, 6)
    topk, x, weights = batch[group.rank]
    used = on_gpu(topk >= 0)
    with make_exchange(group, layout="by_expert", dtype="fp32") as exchange:
        rows = on_gpu(x).requires_grad_()
        scale = on_gpu(weights).requires_grad_()
        route = exchange.route(on_gpu(topk), sizing="worst_case")
        delivered, _, _ = autograd.dispatch(exchange, route, rows)
        out = autograd.combine(exchange, route, 2 * delivered, scale)
        out.sum().backward()
        torch.cuda.synchronize()
        exchange.check()
        assert torch.equal(rows.grad, (2 * scale * used).sum(1, keepdim=True).expand_as(rows))
        assert torch.equal(scale.grad, used * 2 * rows.detach().sum(1, keepdim=True))
        group.barrier()


def leave_objects(group):
    """What a program that simply ends leaves behind; the exit must be quiet."""
    exchange = make_exchange(group, dtype="fp32", arena_bytes=1 << 20)
    route = exchange.route(torch.zeros(0, TOP_K, dtype=torch.int64, device=DEVICE))
    delivery = exchange.dispatch(route, torch.zeros(0, HIDDEN, device=DEVICE))
    pending = exchange.begin_dispatch(route, torch.zeros(0, HIDDEN, device=DEVICE))
    globals()["left"] = (exchange, route, delivery, pending, exchange.allocate((8, 8), "fp32"))


def main():
    rank, size, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.cuda.set_device(DEVICE)
    group = ferry_ep.Group.open(rank, size, address, arrival_timeout_ms=60000)
    for check in (check_high_throughput, check_graph, check_other_frameworks, check_gradients,
                  leave_objects):
        check(group)
        print(check.__name__, flush=True)


if __name__ == "__main__":
    main()
