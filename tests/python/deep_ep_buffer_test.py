"""Buffers are made, replaced, dropped and lost: constructors of every client, lifetimes, failures."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import unittest
import weakref

import torch

from deep_ep_batches import Batch, assert_same, refuses
from deep_ep_ranks import RankTest, free_port

MIB = 1 << 20


class FakeCommunicator:
    """An mpi4py communicator's three words, over the checks' gloo group."""

    def __init__(self, ranks):
        self._ranks = ranks

    def Get_rank(self):
        return self._ranks.rank

    def Get_size(self):
        return self._ranks.num_ranks

    def allgather(self, value):
        return self._ranks.gather(value)


def check_constructors(ranks):
    """Argument for argument what vLLM, SGLang, Megatron, xtuner, TensorRT-LLM and others pass."""
    import deep_ep

    hint = deep_ep.Buffer.get_low_latency_rdma_size_hint(16, 512, ranks.num_ranks, 8)
    group, comm = ranks.group, FakeCommunicator(ranks)
    calls = [
        ((), dict(group=group, num_nvl_bytes=MIB, num_rdma_bytes=0, low_latency_mode=False,
                  num_qps_per_rank=1, explicitly_destroy=True)),
        ((), dict(group=group, num_nvl_bytes=MIB, num_rdma_bytes=hint, low_latency_mode=True,
                  num_qps_per_rank=2, allow_nvlink_for_low_latency_mode=True, allow_mnnvl=False,
                  explicitly_destroy=True, enable_shrink=True)),
        ((group, MIB, hint), dict(low_latency_mode=True, num_qps_per_rank=20, allow_mnnvl=True)),
        ((group, MIB, 0), {}),
        ((group, int(2e9), hint), dict(low_latency_mode=True, num_qps_per_rank=8 / 4,
                                       use_fabric=True)),
        ((None, MIB, 0), dict(comm=comm)),
        ((None, 0, hint), dict(low_latency_mode=True, num_qps_per_rank=2, comm=comm,
                               allow_nvlink_for_low_latency_mode=True)),
    ]
    known = weakref.WeakValueDictionary()
    for arguments, named in calls:
        buffer = deep_ep.Buffer(*arguments, **named)
        known["buffer"] = buffer
        nvl, rdma = arguments[1:3] if arguments else (named["num_nvl_bytes"], named["num_rdma_bytes"])
        assert (buffer.num_nvl_bytes, buffer.num_rdma_bytes) == (nvl, rdma)
        assert (buffer.rank, buffer.group_size) == (ranks.rank, ranks.num_ranks)
        assert buffer.group is (group if "comm" not in named else comm)
        assert buffer.low_latency_mode is named.get("low_latency_mode", False)
        assert buffer.runtime.is_available() and buffer.runtime.get_num_rdma_ranks() == 1
        if named.get("explicitly_destroy"):
            buffer.destroy()
        del buffer
        assert "buffer" not in known
    # The communicator's membership ends with it: a rank that drops it early would have left before
    # a slower one made its last buffer.
    ranks.barrier()


def check_destroy(ranks):
    import deep_ep

    for _ in range(5):
        buffer = deep_ep.Buffer(ranks.group, MIB, 0, explicitly_destroy=True)
        batch = Batch(ranks, 4)
        received = batch.dispatch(buffer)
        buffer.destroy()
        assert buffer.runtime is None
        assert_same(received[0] + 0, received[0].cpu())  # outputs outlive the buffer
        refuses(AssertionError, "destroyed already", buffer.destroy)
        refuses(AssertionError, "dispatch: the buffer is destroyed", buffer.dispatch, batch.x)
    buffer = deep_ep.Buffer(ranks.group)
    refuses(AssertionError, "explicitly_destroy", buffer.destroy)


def check_collected_in_any_order(ranks):
    """Ranks drop their buffers at different times, while others still use theirs."""
    import deep_ep

    first, second = (deep_ep.Buffer(ranks.group, MIB, 0) for _ in range(2))
    batch = Batch(ranks, 6)
    results = [batch.dispatch(buffer) for buffer in (first, second)]
    if ranks.rank % 2:
        del first
        gc.collect()
    third = deep_ep.Buffer(ranks.group, MIB, 0)
    out = second.combine(results[1][0], results[1][4])[0]
    assert_same(third.combine(results[0][0], results[0][4])[0], out.cpu())


def check_memory_is_given_back(ranks):
    import deep_ep

    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    sizes = []
    for _ in range(12):
        buffer = deep_ep.Buffer(ranks.group, MIB, 0, explicitly_destroy=True)
        Batch(ranks, 64, hidden=1024).dispatch(buffer)
        buffer.destroy()
        del buffer
        sizes.append(resident())
    assert sizes[-1] - sizes[3] < 4 * MIB, sizes


def check_num_sms_table_is_looked_up_at_the_call(ranks):
    import deep_ep

    buffer, seen = deep_ep.Buffer(ranks.group, MIB, 0), []
    original = deep_ep.Buffer.__dict__["get_dispatch_config"]

    def replaced(num_ranks):
        seen.append(num_ranks)
        return deep_ep.Config(deep_ep.Buffer.num_sms, 6, 256)

    deep_ep.Buffer.get_dispatch_config = staticmethod(replaced)
    try:
        Batch(ranks, 3).dispatch(buffer, config=None)
    finally:
        deep_ep.Buffer.get_dispatch_config = original
    assert seen == [ranks.num_ranks], seen


class Lifetimes(RankTest):
    def test_every_clients_constructor_is_served(self):
        self.check(check_constructors)

    def test_destroy_ends_a_buffer_and_not_its_group(self):
        self.check(check_destroy)

    def test_buffers_are_collected_in_any_order(self):
        self.check(check_collected_in_any_order)

    def test_memory_comes_back(self):
        self.check(check_memory_is_given_back)

    def test_a_replaced_table_is_used(self):
        self.check(check_num_sms_table_is_looked_up_at_the_call)


PROGRAM = """
    import atexit, os, signal, sys, torch, deep_ep
    rank, how = int(sys.argv[1]), sys.argv[2]
    buffer = deep_ep.Buffer(None, 1 << 20, 0, rank=rank, group_size=2,
                            explicitly_destroy=how == "atexit")
    topk = torch.tensor([[0, 3], [2, 1]])
    x = torch.ones((2, 64), dtype=torch.bfloat16)
    per_rank, _, per_expert, member, _ = buffer.get_dispatch_layout(topk, 4)
    def dispatch():
        return buffer.dispatch(x, num_tokens_per_rank=per_rank, is_token_in_rank=member,
                               num_tokens_per_expert=per_expert, topk_idx=topk,
                               topk_weights=torch.ones((2, 2)))
    result = dispatch()
    if how == "atexit":
        atexit.register(buffer.destroy)
    if how == "kill":
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dispatch()
        except RuntimeError as error:
            print(type(error).__name__, error)
            sys.exit(0)
        sys.exit("nothing was raised")
    print(int(buffer.combine(result[0], result[4])[0][0, 0]))
"""


class Processes(unittest.TestCase):
    """Two ranks without a process group, which meet at an address of the environment."""

    def run_two(self, how, launcher=None):
        """launcher(rank): further variables."""
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                       "FERRY_TIMEOUT_MS": "20000", "NVSHMEM_QP_DEPTH": "2048"}
        processes = [
            subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM), str(rank), how],
                             env={**environment, **(launcher(rank) if launcher else {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
            for rank in range(2)
        ]
        return [(*process.communicate(timeout=60), process.returncode) for process in processes]

    def test_they_end_quietly_with_a_live_buffer(self):
        for out, errors, code in self.run_two("exit"):
            self.assertEqual((out, errors, code), ("2\n", "", 0))

    def test_they_meet_as_torchrun_says_and_destroy_at_exit(self):
        def torchrun(rank):
            return {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": "2"}

        for out, errors, code in self.run_two("atexit", torchrun):
            self.assertEqual((out, errors, code), ("2\n", "", 0))

    def test_a_killed_peer_is_an_error_and_no_hang(self):
        killed, survivor = self.run_two("kill")
        self.assertEqual(killed[2], -signal.SIGKILL)
        self.assertEqual(survivor[2], 0, survivor)
        self.assertIn("PeerLostError", survivor[0])
        self.assertIn("rank 0", survivor[0])


if __name__ == "__main__":
    unittest.main()
