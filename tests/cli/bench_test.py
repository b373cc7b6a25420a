"""ferry bench: checked exchanges, launchers, deaths, and input that is refused."""

import os
import shutil
import signal
import socket
import struct
import tempfile
import time
import unittest

import program

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RECORDINGS = os.path.join(REPOSITORY, "..", "shared", "data")
LONG = ("bench", "--no-ceiling", "--ranks", "4", "--tokens", "256", "--hidden", "1024", "--iters",
        "1000000")


def write_npy(path, ids, shape, descr="<i2", fortran=False):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.write(struct.pack(f"<{len(ids)}h", *ids))


def children_of(pid, count):
    """The started ranks, once there are `count` of them."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(child) for child in file.read().split()]
        if len(children) == count:
            return children
    raise AssertionError(f"process {pid} has not started {count} ranks")


def is_at_work(pid):
    """Whether a rank has begun to exchange: it has mapped its peers' memory."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        return file.read().count("memfd:ferry") > 4


def wait_until_at_work(pids):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if all(is_at_work(pid) for pid in pids):
            return
    raise AssertionError("the ranks do not begin")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Checked(unittest.TestCase):
    def check(self, *arguments, **options):
        result = program.run(*program.SMALL, *arguments, "--json", **options).json()
        self.assertTrue(result["check"]["ok"], result["check"])
        self.assertEqual(result["check"]["rows_compared"], result["check"]["rows_planned"])
        self.assertEqual(result["check"]["mismatches"], 0)
        return result

    def test_every_layout_dtype_and_mode(self):
        for layout in ("by-rank", "by-expert", "padded"):
            for dtype in ("bf16", "fp8", "fp8-ue8m0"):
                for mode in ("ht", "ll"):
                    with self.subTest(layout=layout, dtype=dtype, mode=mode):
                        self.check("--ranks", "3", "--layout", layout, "--dtype", dtype, "--mode",
                                   mode)

    def test_every_sizing_and_form_of_combine(self):
        for layout in ("by-rank", "by-expert", "padded"):
            with self.subTest(layout=layout):
                self.check("--ranks", "2", "--layout", layout, "--sizing", "worst-case")
                self.check("--ranks", "2", "--layout", layout, "--combine", "push")
        self.check("--ranks", "2", "--layout", "by-expert", "--weighted")

    def test_every_routing(self):
        for routing in ("uniform", "zipf:1.2", "grouped:2/4"):
            with self.subTest(routing=routing):
                self.check("--ranks", "2", "--routing", routing)

    def test_one_rank(self):
        self.assertEqual(self.check("--ranks", "1")["dispatch"]["wire_bytes"], 0)

    def test_ranks_that_are_threads(self):
        result = self.check("--ranks", "3", "--thread-ranks")
        self.assertEqual(result["ranks"], 3)
        self.assertTrue(result["thread_ranks"])
        self.check("--ranks", "2", "--thread-ranks", "--mode", "ll")

    def test_threads_without_a_number_are_the_ranks(self):
        self.assertTrue(self.check("--ranks", "2", "--threads")["thread_ranks"])
        two_each = self.check("--ranks", "2", "--threads", "2")
        self.assertEqual(two_each["threads"], 2)
        self.assertNotIn("thread_ranks", two_each)
        answer = program.run(*program.SMALL, "--threads", "many")
        self.assertEqual(answer.code, 2, answer)
        self.assertIn("--threads: many is not a whole number", answer.err)

    def test_experts_that_do_not_divide(self):
        answer = program.run(*program.SMALL, "--ranks", "7", "--experts", "60")
        self.assertEqual(answer.code, 0, answer)
        self.assertIn("60 experts do not divide by 7 ranks: the first 4 own one more", answer.err)

    def test_more_ranks_than_experts(self):
        self.check("--ranks", "5", "--experts", "4", "--topk", "2")

    def test_no_tokens(self):
        self.assertEqual(self.check("--ranks", "2", "--tokens", "0")["check"]["rows_compared"], 0)

    def test_the_deepep_preset_counts_as_deepep_does(self):
        result = self.check("--ranks", "2", "--preset", "deepep-intranode")
        self.assertGreater(result["deepep"]["dispatch_gbs"], 0)

    def test_low_latency_reports_round_trip_and_ping_pong(self):
        trip = self.check("--ranks", "2", "--mode", "ll", "--tokens", "8")["round_trip"]
        self.assertGreater(trip["median_us"], 0)
        self.assertGreater(trip["ping_pong"]["payload_us"], 0)
        self.assertGreater(trip["ratio"], 0)

    def test_recordings_of_the_field(self):
        for name, layer in (("qwen1.5-moe-layer0-topk_ids.npy", "0"),
                            ("vllm-routed-experts.npy", "1")):
            path = os.path.join(RECORDINGS, name)
            if not os.path.exists(path):
                self.skipTest("the recordings are not here: ../shared/data")
            for ranks in ("8", "7"):
                with self.subTest(name=name, ranks=ranks):
                    result = program.run("bench", "--no-ceiling", "--routing", path, "--layer", layer,
                                         "--ranks", ranks, "--hidden", "128", "--iters", "2",
                                         "--check", "--json").json()
                    self.assertTrue(result["check"]["ok"], result["check"])
                    self.assertEqual(result["topk"], 4)


class Launchers(unittest.TestCase):
    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            self.skipTest("mpirun is not installed")
        launcher = [mpirun, "--oversubscribe", "-n", "4"]
        if os.geteuid() == 0:
            launcher.append("--allow-run-as-root")
        result = program.run(*program.SMALL, "--json", launcher=launcher).json()
        self.assertEqual(result["ranks"], 4)
        self.assertTrue(result["check"]["ok"], result["check"])

    def test_an_environment_like_torchrun(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        ranks = [program.start(*program.SMALL, "--json", RANK=str(rank), LOCAL_RANK=str(rank),
                               WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=port)
                 for rank in range(2)]
        answers = [program.Answer(rank, 60) for rank in ranks]
        self.assertTrue(answers[0].json()["check"]["ok"])
        self.assertEqual(answers[1].code, 0, answers[1])
        self.assertEqual(answers[1].out, "")

    def test_says_what_it_ignores(self):
        answer = program.run(*program.SMALL, "--ranks", "2", RANK="0", WORLD_SIZE="2")
        self.assertEqual(answer.code, 0, answer)
        self.assertIn("RANK=0, WORLD_SIZE=2 ignored: no launcher of single ranks is seen", answer.err)

    def test_refuses_another_number_of_ranks_than_it_was_started_with(self):
        answer = program.run(*program.SMALL, "--ranks", "2", FERRY_RANK="0", FERRY_SIZE="1",
                             FERRY_ADDRESS="unix:ferry-cli-test-" + str(os.getpid()))
        self.assertEqual(answer.code, 2, answer)
        self.assertIn("--ranks is 2, but the launcher started 1; try: --launch self", answer.err)


class Deaths(unittest.TestCase):
    def test_every_survivor_names_a_killed_rank_within_two_seconds(self):
        bench = program.start(*LONG)
        ranks = children_of(bench.pid, 4)
        wait_until_at_work(ranks)
        os.kill(ranks[2], signal.SIGKILL)
        killed = time.monotonic()

        answer = program.Answer(bench, 20)

        self.assertLess(time.monotonic() - killed, 2)
        self.assertEqual(answer.code, 1, answer)
        self.assertIn("rank 2 was killed by signal 9", answer.err)
        for survivor in (0, 1, 3):
            lines = [line for line in answer.err.splitlines()
                     if line.startswith(f"ferry[{survivor}/4] error")]
            self.assertEqual(len(lines), 1, answer)
            self.assertRegex(lines[0], "lost rank 2|rank 2 was lost")
        self.assertEqual(answer.out, "")

    def test_a_signal_is_passed_on(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            bench = program.start(*LONG)
            ranks = children_of(bench.pid, 4)
            bench.send_signal(number)

            answer = program.Answer(bench, 20)

            self.assertEqual(answer.code, 4, answer)
            self.assertFalse(any(is_running(rank) for rank in ranks))

    def test_no_rank_outlives_a_killed_parent(self):
        bench = program.start(*LONG)
        ranks = children_of(bench.pid, 4)
        bench.kill()
        bench.communicate(timeout=20)

        deadline = time.monotonic() + 10
        while any(is_running(rank) for rank in ranks):
            self.assertLess(time.monotonic(), deadline)


class BadInput(unittest.TestCase):
    def refuse(self, code, part, *arguments):
        answer = program.run(*program.SMALL, *arguments)
        self.assertEqual(answer.code, code, answer)
        self.assertIn(part, answer.err)
        self.assertEqual(len(answer.err.splitlines()), 1, answer)
        self.assertEqual(answer.out, "")

    def test_sizes(self):
        self.refuse(2, "--topk 25 is above --experts 24", "--topk", "25")
        self.refuse(2, "--hidden is 100, expected a multiple of 8", "--hidden", "100")
        self.refuse(2, "--ranks is 0, expected 1 or more", "--ranks", "0")
        self.refuse(2, "--engine 'tpu' is unknown, expected cpu or cuda", "--engine", "tpu")
        self.refuse(2, "--preset 'x' is unknown, expected deepep-intranode", "--preset", "x")

    def test_more_than_memory_allows_is_refused_before_anything_is_allocated(self):
        self.refuse(1, "2000 ranks need", "--ranks", "2000", "--tokens", "100000")

    def test_recordings(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r.npy")
            self.refuse(1, "No such file or directory", "--routing", path)
            write_npy(path, [0, 1, 2, 3], (2, 2))
            self.refuse(2, "has 2 columns", "--routing", path)
            write_npy(path, [0, 1, 2, 3], (1000, 4))
            self.refuse(2, f"recording '{path}' is truncated: its shape needs 8000 bytes of ids, 8 are "
                           "there", "--routing", path)
            write_npy(path, [0, 1, 2, 3], (1, 4), descr="|O")
            self.refuse(2, "has elements of type '|O'", "--routing", path)
            write_npy(path, [0, 1, 2, 2], (1, 4))
            self.refuse(2, "names expert 2 twice for token 0", "--routing", path)
            write_npy(path, [0, 1, 2, 99], (1, 4))
            self.refuse(2, "--experts is 24, but recording", "--routing", path)


if __name__ == "__main__":
    unittest.main()
