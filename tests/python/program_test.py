"""`python -m ferry_ep` is the ferry program, and the environment table is the same in both."""

import json
import pathlib
import subprocess
import sys
import unittest

import ferry_ep


@unittest.skipUnless((pathlib.Path(ferry_ep.__file__).parent / "bin" / "ferry").exists(),
                     "this build has no ferry program")
class Program(unittest.TestCase):
    def run_program(self, *arguments):
        return subprocess.run([sys.executable, "-m", "ferry_ep", *arguments], capture_output=True,
                              text=True, check=False)

    def test_it_passes_arguments_output_and_exit_status(self):
        done = self.run_program("env", "--explain")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line in ferry_ep.env_table():
            self.assertIn(line.name, done.stdout)
        self.assertEqual(self.run_program("frobnicate").returncode, 2)

    def test_an_exchange_is_measured_and_checked_from_the_package(self):
        done = self.run_program("bench", "--engine", "cpu", "--ranks", "2", "--tokens", "32",
                                "--hidden", "256", "--experts", "8", "--topk", "2", "--iters", "2",
                                "--check", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["check"]["ok"])


if __name__ == "__main__":
    unittest.main()
