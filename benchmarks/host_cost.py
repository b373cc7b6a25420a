"""Host time of a dispatch from Python over the same call in C++, along a cached route.

    PYTHONPATH=build/python python benchmarks/host_cost.py build/benchmarks/host_cost

One rank, one token: almost nothing moves, so that what is left is the call. The best of 200 repeats of 200 calls, which other
programs on the machine disturb least.
"""

import subprocess
import sys
import time

import ferry_ep

CALLS = 200


def best_us(call):
    call()
    times = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return min(times)


def measure(tensor, dtypes):
    exchange = ferry_ep.Exchange(ferry_ep.Group.self(), num_experts=4, top_k=2, hidden=16,
                                 max_tokens=8, dtype="fp32", num_threads=1)
    route = exchange.route(tensor([[0, 1]], dtypes[0]))
    x, weights = tensor([[1.0] * 16], dtypes[1]), tensor([[0.5, 0.5]], dtypes[1])
    yield "dispatch", best_us(lambda: exchange.dispatch(route, x, topk_weights=weights))
    yield ("dispatch and its tokens",
           best_us(lambda: exchange.dispatch(route, x, topk_weights=weights).tokens))


def main():
    program = subprocess.run(sys.argv[1:2], capture_output=True, text=True, check=True)
    in_cpp = float(program.stdout)
    print(f"{'C++':8} {'dispatch and its tokens':24} {in_cpp:6.2f} us")
    kinds = []
    try:
        import numpy
        kinds.append(("NumPy", numpy.array, (numpy.int64, numpy.float32)))
    except ImportError:
        pass
    try:
        import torch
        kinds.append(("PyTorch", lambda v, t: torch.tensor(v, dtype=t), (torch.int64, torch.float32)))
    except ImportError:
        pass
    for name, tensor, dtypes in kinds:
        for what, spent in measure(tensor, dtypes):
            print(f"{name:8} {what:24} {spent:6.2f} us, {spent - in_cpp:5.2f} over C++")


if __name__ == "__main__":
    main()
