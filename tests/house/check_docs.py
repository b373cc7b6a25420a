#!/usr/bin/env python3
"""Every command in a guide is run here, or says why it is not.

Reads the ```sh blocks of README.md, CONTRIBUTING.md and docs/. A line that calls the ferry program is
run in the repository's root and must exit with 0, or with N where its comment says "exit N". A line of
another kind must be listed below with the test that runs it, or stand in a block that is marked "needs
hardware" or "needs a cluster".
Links between the guides must lead to a file.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# First words of a line, and what runs it.
RUN_ELSEWHERE = {
    "./ferry-quickstart": "tests/fresh-machine",
    "./ferry-test": ".ci/run",
    "cmake": ".ci/run builds with the same commands",
    "ninja": ".ci/run builds with the same commands",
    "mpirun": "tests/ranks, where Open MPI is installed",
    "pip": "tests/python/wheel_test.py",
    "python": "tests/python: the programs of examples/, wheel_test.py, and benchmarks/ by hand",
    "benchmarks/compare_mpi": "by hand; the figures name machine and date",
}
MARKS = ("needs hardware", "needs a cluster")


def commands_of(text):
    """(line number, command, exit code) of every line of the sh blocks that need no hardware."""
    inside, skipped = False, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside and line.strip() == "```sh"
            skipped = False
            continue
        if not inside:
            continue
        skipped = skipped or any(mark in line for mark in MARKS)
        command = re.sub(r"\s+#.*$", "", line).strip()
        if command and not command.startswith("#") and not skipped:
            said = re.search(r"#.*\bexit (\d)\b", line)
            yield number, command, int(said.group(1)) if said else 0


def check_links(path, text):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not (path.parent / target).exists():
            yield f"{path}: link to '{target}', which does not exist"


def check_command(root, ferry, where, command, code):
    words = command.split()
    program = words[0]
    if program in ("build/bin/ferry", "ferry"):
        line = command.replace(program, str(ferry), 1)
        done = subprocess.run(line, shell=True, cwd=root, capture_output=True, text=True, timeout=240)
        if done.returncode != code:
            return f"{where}: '{command}' exits with {done.returncode}: {done.stderr.strip()[-300:]}"
    elif program not in RUN_ELSEWHERE:
        return f"{where}: '{command}' is run by no test; list it in check_docs.py or mark its block"
    return None


def check(root, ferry):
    guides = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    problems = []
    for guide in guides:
        text = guide.read_text()
        problems += check_links(guide, text)
        for number, command, code in commands_of(text):
            problem = check_command(root, ferry, f"{guide.name}:{number}", command, code)
            if problem:
                problems.append(problem)
    return problems


def self_test():
    """A guide with one fault of each kind; all must be found."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs").mkdir()
        (root / "CONTRIBUTING.md").write_text("```sh\nmake coffee\n```\n")
        (root / "README.md").write_text(
            "[gone](docs/gone.md)\n```sh\nferry --fail\nferry --code  # exit 1\n# needs hardware\nsrun ferry\n```\n")
        problems = check(root, "false")
        expected = ("gone.md", "--fail", "make coffee")
        missed = [word for word in expected if not any(word in text for text in problems)]
        extra = len(problems) - len(expected)
        return [f"self-test: not found: {missed}, {extra} too many: {problems}"] if missed or extra else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path)
    parser.add_argument("--ferry", default="false", help="the program to run")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    problems = self_test() if arguments.self_test else check(arguments.root, arguments.ferry)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
