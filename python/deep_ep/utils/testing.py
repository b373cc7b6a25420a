"""Timing that DeepEP's test scripts share; needs a GPU."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

_L2_BYTES = 256_000_000  # more than any L2 cache holds
_GATE = "close_gate"
_SLEEP_CYCLES = 20_000_000  # about 10 ms, so that all ranks have launched when the first one runs


def flush_l2_cache(enabled: bool = True) -> None:
    """Writes more than the L2 cache holds."""
    if enabled:
        torch.empty(_L2_BYTES, dtype=torch.uint8, device="cuda").zero_()


def bench(
    fn: Callable[[], Any],
    num_warmups: int = 50,
    num_tests: int = 50,
    post_fn: Optional[Callable[[], Any]] = None,
    flush_l2: bool = True,
) -> Tuple[float, float, float]:
    """Mean, least and most seconds of ``fn`` between two events; the first of the timed calls is dropped."""
    for _ in range(num_warmups):
        fn()
    torch.cuda.synchronize()
    pairs = []
    for _ in range(num_tests):
        flush_l2_cache(flush_l2)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        fn()
        end.record()
        pairs.append((begin, end))
        if post_fn is not None:
            post_fn()
    torch.cuda.synchronize()
    seconds = [begin.elapsed_time(end) / 1e3 for begin, end in pairs[1:]]
    return sum(seconds) / len(seconds), min(seconds), max(seconds)


def bench_kineto(
    fn: Callable[[], Any],
    kernel_names: Union[str, Tuple[str, ...]],
    num_tests: int = 30,
    suppress_kineto_output: bool = False,
    trace_path: Optional[str] = None,
    flush_l2: bool = True,
    barrier_comm_profiling: bool = False,
    num_kernels_per_period: int = 1,
    barrier: Optional[Callable[[], Any]] = None,
) -> Any:
    """Mean seconds of the kernels whose names contain ``kernel_names``, by torch's profiler.

    "dispatch" and "combine" are parts of the names of FerryEP's kernels, too. With ``num_kernels_per_period``
    2 a list for each name: that kernel, and the gate behind it, where the receiving half of a split call
    waits. EP_USE_NVIDIA_TOOLS=1 profiles nothing and gives 1.
    """
    assert num_kernels_per_period in (1, 2)
    names = (kernel_names,) if isinstance(kernel_names, str) else kernel_names
    if int(os.environ.get("EP_USE_NVIDIA_TOOLS", "0")):
        return 1 if isinstance(kernel_names, str) else (1,) * len(names)
    fn()  # what is loaded lazily is loaded now
    torch.cuda.synchronize()
    meet = barrier or _meeting()
    with _silenced(suppress_kineto_output), torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA]
    ) as profiler:
        for _ in range(num_tests):
            flush_l2_cache(flush_l2)
            if barrier_comm_profiling:
                torch.cuda._sleep(_SLEEP_CYCLES)
                meet()
            fn()
        torch.cuda.synchronize()
    if trace_path is not None:
        profiler.export_chrome_trace(trace_path)
    kernels = sorted(
        (event for event in profiler.events() if event.device_type.name == "CUDA"),
        key=lambda event: float(event.time_range.start),
    )
    results = [_mean_seconds(kernels, name, num_kernels_per_period) for name in names]
    return results[0] if isinstance(kernel_names, str) else results


def _meeting() -> Callable[[], Any]:
    word = torch.ones(1, dtype=torch.float32, device="cuda")
    return lambda: dist.all_reduce(word)


def _mean_seconds(kernels: Sequence[Any], name: str, num_per_period: int) -> Any:
    is_gate_next = False
    moves: List[float] = []
    gates: List[float] = []
    for kernel in kernels:
        seconds = kernel.time_range.elapsed_us() / 1e6
        if name in kernel.name:
            moves.append(seconds)
            is_gate_next = True
        elif is_gate_next and _GATE in kernel.name:
            gates.append(seconds)
            is_gate_next = False
    return [_mean(moves), _mean(gates)] if num_per_period > 1 else _mean(moves)


def _mean(seconds: Sequence[float]) -> float:
    assert seconds, "the profiler saw no such kernel"
    return sum(seconds) / len(seconds)


@contextlib.contextmanager
def _silenced(enabled: bool) -> Iterator[None]:
    """Nothing of this process reaches stdout and stderr, what C++ prints included."""
    if not enabled:
        yield
        return
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in zip((1, 2), kept):
            os.dup2(original, descriptor)
            os.close(original)
        os.close(nowhere)
