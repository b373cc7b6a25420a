"""ferry bench --engine cuda without a GPU: what it says where there is no engine, and, with a plugin
whose GPU is the host, all that it does around one."""

import os
import signal
import tempfile
import time
import unittest

import program

FAKE_PLUGIN_DIR = os.environ.get("FAKE_PLUGIN_DIR")
CUDA = (*program.SMALL, "--engine", "cuda")

# Writes down what it was told, and keeps what it was given, as MPS would.
CONTROL = """#!/bin/sh
read -r said || said=
echo "$* $said pipe=$CUDA_MPS_PIPE_DIRECTORY log=$CUDA_MPS_LOG_DIRECTORY" >> "{record}"
test -d "$CUDA_MPS_PIPE_DIRECTORY" && test -d "$CUDA_MPS_LOG_DIRECTORY" || exit 9
stat -c %a "$CUDA_MPS_PIPE_DIRECTORY" >> "{record}"
exit {code}
"""


class NoEngine(unittest.TestCase):
    def test_says_where_it_looked(self):
        with tempfile.TemporaryDirectory() as folder:
            for how in (["--ranks", "2"], ["--ranks", "1"], ["--ranks", "2", "--thread-ranks"]):
                with self.subTest(how=how):
                    answer = program.run(*CUDA, *how, FERRY_PLUGIN_DIR=folder)
                    self.assertEqual(answer.code, 1, answer)
                    self.assertIn("the CUDA engine cannot be loaded: " + folder, answer.err)
                    self.assertEqual(len(answer.err.splitlines()), 1, answer)
                    self.assertEqual(answer.out, "")


@unittest.skipUnless(FAKE_PLUGIN_DIR, "FAKE_PLUGIN_DIR names no plugin without a GPU")
class FakeGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.record = os.path.join(folder.name, "record")
        self.control = os.path.join(folder.name, "nvidia-cuda-mps-control")
        self.variables = {"FERRY_PLUGIN_DIR": FAKE_PLUGIN_DIR,
                          "PATH": folder.name + ":" + os.environ["PATH"]}
        self.install_control()

    def install_control(self, code=0):
        with open(self.control, "w", encoding="ascii") as file:
            file.write(CONTROL.format(record=self.record, code=code))
        os.chmod(self.control, 0o700)

    def recorded(self):
        if not os.path.exists(self.record):
            return []
        with open(self.record, encoding="ascii") as file:
            return file.read().splitlines()

    def check(self, *arguments):
        result = program.run(*CUDA, *arguments, "--json", **self.variables).json()
        self.assertTrue(result["check"]["ok"], result["check"])
        self.assertEqual(result["check"]["rows_compared"], result["check"]["rows_planned"])
        return result

    def assert_was_started_and_stopped(self):
        start, start_mode, stop, stop_mode = self.recorded()
        self.assertRegex(start, "^-d  pipe=/tmp/ferry-mps-.{6}/pipe log=/tmp/ferry-mps-.{6}/log$")
        self.assertEqual(stop, start.replace("-d ", " quit", 1))
        self.assertEqual([start_mode, stop_mode], ["700", "700"])
        directory = start.split("pipe=")[1].split("/pipe ")[0]
        self.assertFalse(os.path.exists(directory))

    def test_every_layout_dtype_and_mode(self):
        for layout in ("by-rank", "by-expert", "padded"):
            for dtype in ("bf16", "fp8"):
                for mode in ("ht", "ll"):
                    with self.subTest(layout=layout, dtype=dtype, mode=mode):
                        self.check("--ranks", "3", "--layout", layout, "--dtype", dtype, "--mode", mode,
                                   "--thread-ranks", "--iters", "5")

    def test_says_what_moved_the_rows(self):
        result = self.check("--ranks", "2", "--sms", "16")
        self.assertEqual(result["sms"], 16)
        self.assertEqual(result["device"], "Fake GPU")
        self.assertTrue(result["shared_card"])
        self.assertNotIn("threads", result)
        self.assertNotIn("thread_ranks", result)
        for time_us in ("dispatch_us", "combine_us", "route_dispatch_us"):
            self.assertGreater(result["batched"][time_us], 0)
        self.assertNotIn("graph", result)

    def test_low_latency_replays_graphs(self):
        result = self.check("--ranks", "2", "--mode", "ll", "--thread-ranks")
        self.assertGreater(result["graph"]["dispatch_us"], 0)
        self.assertGreater(result["graph"]["combine_us"], 0)
        self.assertNotIn("batched", result)
        self.assertIsNone(result["round_trip"]["ping_pong"])
        self.assertTrue(result["thread_ranks"])

    def test_the_ceiling_is_a_copy_on_the_device(self):
        arguments = [argument for argument in CUDA if argument != "--no-ceiling"]
        result = program.run(*arguments, "--ranks", "1", "--json", **self.variables).json()
        self.assertEqual(result["ceiling"]["kind"], "device copy")
        self.assertGreater(result["ceiling"]["gbs"], 0)
        self.assertFalse(result["shared_card"])

    def test_starts_mps_where_processes_share_a_gpu(self):
        self.check("--ranks", "2")
        self.assert_was_started_and_stopped()

    def test_needs_no_mps_for_one_rank_or_for_threads(self):
        self.check("--ranks", "1")
        self.check("--ranks", "2", "--thread-ranks")
        self.check("--ranks", "2", "--threads")
        self.assertEqual(self.recorded(), [])

    def test_takes_the_mps_that_is_there(self):
        self.variables["CUDA_MPS_PIPE_DIRECTORY"] = "/somewhere"
        answer = program.run(*CUDA, "--ranks", "2", **self.variables)
        self.assertEqual(answer.code, 0, answer)
        self.assertIn("MPS is taken from CUDA_MPS_PIPE_DIRECTORY=/somewhere", answer.err)
        self.assertEqual(self.recorded(), [])

    def test_goes_on_without_mps(self):
        self.install_control(code=5)
        answer = program.run(*CUDA, "--ranks", "2", **self.variables)
        self.assertEqual(answer.code, 0, answer)
        self.assertIn("MPS is missing, so 2 processes on 1 GPU take turns and time slices will dominate: "
                      "'nvidia-cuda-mps-control -d' failed: exit code 5; try: --thread-ranks", answer.err)
        self.assertEqual(len(self.recorded()), 2)

    def test_stops_mps_after_a_failure(self):
        answer = program.run(*CUDA, "--ranks", "2", "--combine", "pull", "--nodes", "2", **self.variables)
        self.assertEqual(answer.code, 1, answer)
        self.assert_was_started_and_stopped()

    def test_stops_mps_after_a_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                bench = program.start(*CUDA, "--ranks", "2", "--iters", "1000000", **self.variables)
                deadline = time.monotonic() + 30
                while len(self.recorded()) < 2:
                    self.assertLess(time.monotonic(), deadline)
                bench.send_signal(number)

                answer = program.Answer(bench, 30)

                self.assertEqual(answer.code, 4, answer)
                self.assert_was_started_and_stopped()
                os.remove(self.record)


if __name__ == "__main__":
    unittest.main()
