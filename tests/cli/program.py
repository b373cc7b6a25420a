"""Runs the ferry program for tests: how it is called, and what it answered."""

import json
import os
import subprocess
import sys

FERRY = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ferry"

# Variables of a launcher around the tests must not leak into them.
LAUNCHER_PREFIXES = ("FERRY_", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_")
LAUNCHER_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                  "MASTER_PORT"}


def environment(**added):
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(LAUNCHER_PREFIXES) and name not in LAUNCHER_NAMES}
    clean.update(added)
    return clean


def start(*arguments, launcher=(), **variables):
    return subprocess.Popen([*launcher, FERRY, *arguments], env=environment(**variables),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


class Answer:
    def __init__(self, process, timeout):
        try:
            self.out, self.err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            self.out, self.err = process.communicate()
            raise AssertionError(f"no end within {timeout} s\n{self.out}\n{self.err}") from None
        self.code = process.returncode

    def json(self):
        assert self.code == 0, self
        return json.loads(self.out)

    def __str__(self):
        return f"exit code {self.code}\nstdout:\n{self.out}\nstderr:\n{self.err}"


def run(*arguments, timeout=120, **options):
    return Answer(start(*arguments, **options), timeout)


# A small exchange that takes no ceiling, which would take seconds.
SMALL = ("bench", "--no-ceiling", "--tokens", "40", "--hidden", "256", "--experts", "24", "--topk", "4",
         "--iters", "2", "--warmup", "1", "--check")
