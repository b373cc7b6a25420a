"""Real processes: torch.distributed's groups of gloo, torchrun's variables, multiprocessing."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

PROGRAM = textwrap.dedent("""
    import sys
    import torch, torch.distributed as dist
    import ferry_ep
    rank, size, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)

    def exchange_once(group):
        exchange = ferry_ep.Exchange(group, num_experts=2 * group.size, top_k=2, hidden=32,
                                     max_tokens=8, num_threads=1)
        x = torch.full((rank + 1, 32), float(rank + 1), dtype=torch.bfloat16)
        topk = torch.arange(2 * (rank + 1)).reshape(-1, 2) % exchange.config.num_experts
        route = exchange.route(topk)
        delivery = exchange.dispatch(route, x)
        assert delivery.tokens.dtype is torch.bfloat16
        out = exchange.combine(route, delivery.tokens)
        destinations = torch.tensor([len({int(e) // 2 for e in row}) for row in topk])
        assert torch.equal(out, x * destinations[:, None]), (rank, out)
        exchange.destroy()

    group = ferry_ep.Group.from_process_group()
    assert (group.rank, group.size, group.num_nodes) == (rank, size, 1)
    assert group.all_gather(b"x" * rank) == [b"x" * r for r in range(size)]
    exchange_once(group)
    halves = [dist.new_group([0, 2]), dist.new_group([1])]
    half = ferry_ep.Group.from_process_group(halves[rank % 2])
    assert half.size == (2 if rank % 2 == 0 else 1)
    exchange_once(half)
    half.leave()
    # As if each rank had a host of its own: the meeting is over TCP, with a secret that torch carried.
    ferry_ep._process_group._host = lambda: (str(rank), 0)
    apart = ferry_ep.Group.from_process_group()
    assert apart.all_gather(bytes([rank])) == [b"\\0", b"\\1", b"\\2"]
    apart.barrier()
    # The default group is not disturbed, and is left in order: no rank sees the other's end as a fault.
    group.barrier()
    dist.barrier()
    print("fine")
""")


class Processes(unittest.TestCase):
    def test_gloo_groups_and_subgroups_meet_and_exchange(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), "3",
                                       os.path.join(folder, "store")],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for rank in range(3)]
            try:
                for rank, process in enumerate(ranks):
                    out, err = process.communicate(timeout=90)
                    self.assertEqual((process.returncode, out), (0, "fine\n"), f"rank {rank}: {err}")
            finally:
                for process in ranks:
                    process.kill()

    def test_a_launchers_variables_are_read(self):
        program = ("import ferry_ep; g = ferry_ep.Group.from_env(); g.barrier(); "
                   "print(ferry_ep.Group.is_launched(), g.rank, g.size)")
        environment = {**os.environ, "FERRY_SIZE": "2",
                       "FERRY_ADDRESS": f"unix:python-test-{os.getpid()}"}
        ranks = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                                  env={**environment, "FERRY_RANK": str(rank)}) for rank in range(2)]
        outs = [process.communicate(timeout=60)[0].split() for process in ranks]
        self.assertEqual([out[1:] for out in outs], [["0", "2"], ["1", "2"]])

    def test_a_rank_that_dies_is_an_exception_that_names_it(self):
        program = textwrap.dedent("""
            import os, sys, ferry_ep
            group = ferry_ep.Group.open(int(sys.argv[1]), 2, sys.argv[2])
            group.barrier()
            if group.rank == 1:
                os._exit(9)
            try:
                group.barrier()
            except ferry_ep.PeerLostError as error:
                assert isinstance(error, ConnectionError)
                print(error.code.name, "rank 1" in str(error))
        """)
        address = f"unix:python-death-{os.getpid()}"
        ranks = [subprocess.Popen([sys.executable, "-c", program, str(rank), address],
                                  stdout=subprocess.PIPE, text=True) for rank in range(2)]
        outs = [process.communicate(timeout=60)[0] for process in ranks]
        self.assertEqual(outs, ["PEER_LOST True\n", ""])


if __name__ == "__main__":
    unittest.main()
