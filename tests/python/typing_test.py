"""The annotations: strict, true to the running package, and useful to a caller's own checker."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

GOOD = """
import ferry_ep
def work(group: ferry_ep.Group) -> list[int]:
    exchange = ferry_ep.Exchange(group, ferry_ep.ExchangeConfig(num_experts=8, layout=ferry_ep.Layout.PADDED))
    pending = exchange.begin_route([[0]])
    route = pending.finish()
    return route.expert_counts
"""
BAD = """
import ferry_ep
def work(exchange: ferry_ep.Exchange, route: ferry_ep.Route) -> str:
    exchange.dispatch(route)
    exchange.combine(exchange, route)
    return route.num_tokens
"""


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed for this Python")
class Typing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cache.cleanup)

    def run_mypy(self, *arguments, module="mypy"):
        environment = {**os.environ, "MYPYPATH": str(ROOT / "python"),
                       "MYPY_CACHE_DIR": self.cache.name}
        return subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT,
                              capture_output=True, text=True, check=False, env=environment)

    def test_the_packages_are_strictly_typed(self):
        done = self.run_mypy("--config-file", "pyproject.toml", "-p", "ferry_ep", "-p", "deep_ep",
                             "-p", "deep_ep_cpp")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_annotations_are_those_of_the_running_package(self):
        done = self.run_mypy("ferry_ep", "--ignore-missing-stub", "--concise", "--allowlist",
                             "tests/python/stubtest_allowlist.txt", "--ignore-unused-allowlist",
                             "--mypy-config-file", "pyproject.toml", module="mypy.stubtest")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_callers_checker_accepts_right_and_finds_wrong_calls(self):
        with tempfile.TemporaryDirectory() as folder:
            good, bad = pathlib.Path(folder) / "good.py", pathlib.Path(folder) / "bad.py"
            good.write_text(GOOD)
            bad.write_text(BAD)
            found = self.run_mypy("--config-file", "pyproject.toml", good, bad).stdout
        self.assertNotIn("good.py", found)
        for fault in ('Missing positional argument "x"', 'Argument 1 to "combine"',
                      'Incompatible return value type (got "int", expected "str")'):
            self.assertIn(fault, found)


if __name__ == "__main__":
    unittest.main()
