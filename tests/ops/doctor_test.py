"""`ferry doctor` on machines that were made up: exactly the expected findings, and no false alarm.

    doctor_test.py FERRY PARSE_COMMANDS FOLDER [--update]

FOLDER is where the machines are written. --update writes tests/ops/data/expected/ anew.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import machines
from doctor_cases import CASES

FERRY = pathlib.Path(sys.argv.pop(1)).resolve()
PARSE_COMMANDS = pathlib.Path(sys.argv.pop(1)).resolve()
FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
UPDATE = "--update" in sys.argv
if UPDATE:
    sys.argv.remove("--update")
EXPECTED = pathlib.Path(__file__).parent / "data" / "expected"
BAD = ("warn", "fail", "unknown")

fixes = set()  # every fix that any finding of this run gave


def doctor(*arguments):
    done = subprocess.run([FERRY, "doctor", "--json", *arguments], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode in (0, 1), done.stderr
    findings = json.loads(done.stdout)["findings"]
    failed = any(finding["verdict"] == "fail" for finding in findings)
    assert done.returncode == (1 if failed else 0), (done.returncode, findings)
    fixes.update(finding["fix"] for finding in findings)
    return findings


def verdicts(findings):
    return {finding["id"]: finding["verdict"] for finding in findings}


class DoctorTest(unittest.TestCase):
    trees = {}

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        for name in machines.MACHINES:
            cls.trees[name] = machines.make(name, FOLDER / name, FOLDER / ".libraries")

    def test_judges_each_machine_as_expected(self):
        for name, tree in self.trees.items():
            with self.subTest(machine=name):
                self.compare(name, doctor("--root", str(tree.folder)))

    def test_judges_a_machine_with_an_h200_and_no_nic(self):
        # Facts that `ferry facts --redact` took on a real one: a container, driver 580, nothing of NVSHMEM.
        facts = str(EXPECTED.parent / "h200-without-nic.json")
        self.compare("h200-without-nic", doctor("--facts", facts))
        across = doctor("--facts", facts, "--multi-node")
        self.assertEqual(["hca.present"], [f["id"] for f in across if f["verdict"] in BAD])

    def compare(self, name, findings):
        found = "".join(f"{f['verdict']} {f['id']}\n" for f in findings)
        file = EXPECTED / f"{name}.txt"
        if UPDATE:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(found)
        self.assertEqual(file.read_text(), found)

    def test_finds_what_each_case_shows(self):
        for number, case in enumerate(CASES):
            with self.subTest(check=case.check, machine=case.machine, number=number):
                tree = self.trees[case.machine]
                with tree.changed(case.change):
                    findings = doctor("--root", str(tree.folder), *case.flags)
                finding = next(f for f in findings if f["id"] == case.check)
                self.assertEqual(case.verdict, finding["verdict"], finding)
                self.assertIn(case.says, finding["seen"])
                if case.verdict in BAD:
                    self.assertTrue(finding["fix"] and finding["why"] and finding["seen"], finding)

    def test_has_a_bad_and_a_good_case_for_each_check(self):
        good, bad = set(), {case.check for case in CASES if case.verdict in ("warn", "fail")}
        for tree in self.trees.values():
            good |= {i for i, verdict in verdicts(doctor("--root", str(tree.folder))).items() if verdict == "ok"}
        good |= {case.check for case in CASES if case.verdict == "ok"}
        ids = set(verdicts(doctor("--root", str(self.trees["laptop"].folder))))
        self.assertEqual(set(), ids - bad, "checks that no case shows")
        self.assertEqual(set(), ids - good, "checks that are fine nowhere")

    def test_compares_hosts(self):
        facts = FOLDER / "hosts"
        facts.mkdir(exist_ok=True)
        for name in ("roce-a", "roce-b"):
            done = subprocess.run([FERRY, "facts", "--root", self.trees[name].folder, "--output",
                                   facts / f"{name}.json"], capture_output=True, text=True)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
        found = {f["id"]: f for f in doctor("--facts", str(facts)) if f["id"].startswith("compare.")}
        wrong = {i for i, f in found.items() if f["verdict"] in BAD}
        self.assertEqual({"compare.gid-index", "compare.mtu", "compare.modules"}, wrong)
        self.assertEqual("roce-b: 1; roce-a: 3", found["compare.gid-index"]["seen"])
        self.assertIn("1500", found["compare.mtu"]["seen"])

        same = doctor("--facts", str(facts / "roce-a.json"), "--facts", str(facts / "roce-a.json"))
        self.assertFalse([f for f in same if f["id"].startswith("compare.") and f["verdict"] in BAD])

    def test_finds_ranks_that_share_a_device(self):
        # FC15: eight ranks of one host, all with CUDA_VISIBLE_DEVICES=0.
        folder = FOLDER / "ranks"
        folder.mkdir(exist_ok=True)
        for rank in range(3):
            tree = self.trees["gcp-b200"]
            with tree.changed(lambda t: t.set_environment(CUDA_VISIBLE_DEVICES="0" if rank < 2 else "2",
                                                          LOCAL_RANK=str(rank))):
                subprocess.run([FERRY, "facts", "--root", tree.folder, "--output", folder / f"{rank}.json"],
                               check=True)
        found = {f["id"]: f for f in doctor("--facts", str(folder))}["compare.gpu-sharing"]
        self.assertEqual(("fail", "a4-0 device 0: local ranks 0, 1"), (found["verdict"], found["seen"]))

    def test_judges_facts_as_it_judges_their_tree(self):
        tree = self.trees["gcp-b200"].folder
        file = FOLDER / "facts.json"
        subprocess.run([FERRY, "facts", "--root", tree, "--output", file], check=True)
        self.assertEqual(doctor("--root", str(tree)), doctor("--facts", str(file)))

    def test_hides_names_and_addresses_on_request(self):
        done = subprocess.run([FERRY, "facts", "--redact", "--root", self.trees["gcp-b200"].folder],
                              capture_output=True, text=True, check=True)
        for secret in ("a4-0", "0a00:0001", "GPU-0000", "00000000000000000000000000000001"):
            self.assertNotIn(secret, done.stdout)
        self.assertIn("mlx5_0", done.stdout)

    def test_selects_by_stack_and_by_name(self):
        tree = str(self.trees["gcp-b200"].folder)
        self.assertEqual({"env.ferry", "ferry.engine", "ferry.memory"},
                         {i for i in verdicts(doctor("--root", tree, "--for", "ferry"))} -
                         set(verdicts(doctor("--root", tree, "--for", "deepep"))))
        self.assertEqual({"shm.size"}, set(verdicts(doctor("--root", tree, "--only", "shm"))))
        done = subprocess.run([FERRY, "doctor", "--only", "nosuch"], capture_output=True, text=True)
        self.assertEqual(2, done.returncode)
        self.assertIn("no check is called 'nosuch'", done.stderr)

    def test_refuses_rubbish(self):
        rubbish = FOLDER / "rubbish.json"
        rubbish.write_bytes(b"\x00\xff{")
        for arguments in (("--facts", rubbish), ("--facts", "/no/such"), ("--root", "/no/such"),
                          ("--root", "/", "--facts", rubbish)):
            done = subprocess.run([FERRY, "doctor", *arguments], capture_output=True, text=True)
            self.assertEqual(2, done.returncode, done)

    def test_runs_on_this_machine_within_two_seconds(self):
        for command in ("facts", "doctor", "topo"):
            done = subprocess.run([FERRY, command, "--json"], capture_output=True, text=True, timeout=20)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            json.loads(done.stdout)

    def test_zz_advises_only_commands_that_parse(self):
        for check_fix in checks_fixes():
            fixes.add(check_fix)
        commands = set()
        for fix in fixes:
            for command in re.findall(r"\bferry (?:[a-z]+)(?: --?[\w-]+| [\w.:/*-]+)*", fix):
                commands.add(trim(command))
        self.assertGreater(len(commands), 4)
        done = subprocess.run([PARSE_COMMANDS], input="\n".join(sorted(commands)), capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((0, ""), (done.returncode, done.stdout + done.stderr))


def checks_fixes():
    """The fixes of docs/checks.md, which is printed from the table of checks."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "checks.md"
    return re.findall(r"^- Fix: (.*)\.$", page.read_text(), re.MULTILINE)


def trim(command):
    """The command without the words of the sentence that follows it."""
    words = command.split()
    kept = words[:2]
    i = 2
    while i < len(words) and words[i].startswith("--"):
        kept.append(words[i])
        i += 1
        if i < len(words) and kept[-1] in VALUED:
            kept.append(words[i])
            i += 1
    return " ".join(kept)


VALUED = {"--stack", "--target", "--only", "--format", "--for", "--mode", "--nodes", "--gpus", "--tokens", "--ranks"}

if __name__ == "__main__":
    unittest.main()
