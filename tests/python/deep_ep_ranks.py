"""Ranks for the tests of deep_ep: processes over a gloo group that run one check after the other.

A check is a function of a test module that takes a Ranks object. DEEP_EP_TEST_DEVICE=cuda puts all
tensors on GPUs, which the ranks share in turn; DEEP_EP_TEST_RANKS=8 changes their number.
"""

import atexit
import importlib
import multiprocessing
import multiprocessing.connection
import os
import socket
import traceback
import unittest

DEVICE = os.environ.get("DEEP_EP_TEST_DEVICE", "cpu")
NUM_RANKS = int(os.environ.get("DEEP_EP_TEST_RANKS", "4"))
SECONDS = 60  # of one check, before its ranks are ended


class Ranks:
    """What a check sees of its rank."""

    def __init__(self, rank, num_ranks):
        import torch
        import torch.distributed as dist

        self.rank = rank
        self.num_ranks = num_ranks
        self.group = dist.group.WORLD
        self.device = torch.device("cpu")
        if DEVICE == "cuda":
            index = rank % torch.cuda.device_count()
            torch.cuda.set_device(index)
            self.device = torch.device("cuda", index)

    def gather(self, value):
        """Every rank's value, in rank order; tensors come as CPU tensors."""
        import torch.distributed as dist

        values = [None] * self.num_ranks
        dist.all_gather_object(values, _on_cpu(value), group=self.group)
        return values

    def barrier(self):
        self.gather(None)

    def pair(self):
        """The same for this rank and its neighbour: a process group of two. Called by all."""
        import torch.distributed as dist

        groups = [dist.new_group([first, first + 1]) for first in range(0, self.num_ranks - 1, 2)]
        pair = object.__new__(Ranks)
        pair.rank, pair.num_ranks, pair.device = self.rank % 2, 2, self.device
        pair.group = groups[self.rank // 2]
        return pair


def _on_cpu(value):
    if isinstance(value, (tuple, list)):
        return type(value)(_on_cpu(one) for one in value)
    return value.cpu() if hasattr(value, "cpu") else value


def _serve(rank, num_ranks, port, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=num_ranks
    )
    ranks = Ranks(rank, num_ranks)
    while True:
        request = pipe.recv()
        if request is None:
            break
        module, name, arguments = request
        try:
            torch.manual_seed(1000 + rank)
            getattr(importlib.import_module(module), name)(ranks, *arguments)
            pipe.send("")
        except BaseException:
            pipe.send(f"rank {rank} of {num_ranks}:\n{traceback.format_exc()}")
    dist.destroy_process_group()


class RankProcesses:
    def __init__(self, num_ranks):
        self._context = multiprocessing.get_context("spawn")
        self._num_ranks = num_ranks
        self._processes, self._pipes = [], []

    def run(self, module, name, *arguments):
        """The first failure's traceback, or ""."""
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((module, name, arguments))
        waiting, failures = list(self._pipes), []
        while waiting and not failures:
            ready = multiprocessing.connection.wait(waiting, SECONDS)
            if not ready:
                failures.append(f"{len(waiting)} ranks did not end {name} within {SECONDS} s")
            for pipe in ready:
                waiting.remove(pipe)
                failures += self._answer(pipe, name)
        if failures:
            self.stop(is_forced=True)
        return "\n".join(failures)

    def stop(self, is_forced=False):
        for pipe in self._pipes:
            if not is_forced:
                pipe.send(None)
        for process in self._processes:
            process.join(0 if is_forced else SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes, self._pipes = [], []

    def _start(self):
        os.environ.setdefault("FERRY_TIMEOUT_MS", "20000")  # a defect ends the test
        port = free_port()
        for rank in range(self._num_ranks):
            own, others = self._context.Pipe()
            process = self._context.Process(
                target=_serve, args=(rank, self._num_ranks, port, others), daemon=True
            )
            process.start()
            others.close()
            self._processes.append(process)
            self._pipes.append(own)

    def _answer(self, pipe, name):
        try:
            answer = pipe.recv()
        except EOFError:
            answer = f"a rank ended inside {name}"
        return [answer] if answer else []


_ranks = RankProcesses(NUM_RANKS)  # started by the first check, shared by all test modules
atexit.register(_ranks.stop)


class RankTest(unittest.TestCase):
    """check(function) runs a function of the test's module on every rank."""

    def check(self, function, *arguments):
        failure = _ranks.run(function.__module__, function.__name__, *arguments)
        if failure:
            self.fail(failure)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
