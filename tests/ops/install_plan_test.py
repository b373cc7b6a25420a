"""ferry install as a user meets it: plans for made-up machines, as text, script and JSON."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import machines

FERRY = os.path.abspath(sys.argv.pop(1))


def ferry(*arguments):
    return subprocess.run([FERRY, "install", *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, check=False)


class Plan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)

    def tree(self, name):
        folder = self.root / name
        if not folder.exists():
            machines.make(name, folder, self.root / ".libraries")
        return str(folder)

    def phases(self, name, *arguments):
        answer = ferry("--root", self.tree(name), "--json", *arguments)
        self.assertEqual(answer.returncode, 0, answer)
        return json.loads(answer.stdout)["phases"]

    def statuses(self, name, *arguments):
        return {phase["number"]: phase["status"] for phase in self.phases(name, *arguments)}

    def test_before_anything_every_phase_is_due(self):
        self.assertEqual(set(self.statuses("gcp-b200-before").values()), {"due"})
        self.assertEqual(len(self.phases("gcp-b200-before")), 10)

    def test_marks_what_an_installed_machine_has(self):
        statuses = self.statuses("gcp-b200")
        for number in (1, 2, 3, 4, 6, 7, 8, 9):
            self.assertEqual(statuses[number], "done", number)

    def test_on_gke_there_are_three_phases(self):
        self.assertEqual(list(self.statuses("gke-cos-pod", "--target", "gke-cos")), [5, 7, 9])

    def test_without_nics_there_is_no_nic_driver_to_install(self):
        self.assertEqual(self.statuses("laptop")[2], "not needed")

    def test_names_what_is_not_pinned_and_never_invents_a_pin(self):
        for phase in self.phases("gcp-b200-before"):
            for fetch in phase["fetches"]:
                self.assertNotIn("http://", fetch["source"])
                self.assertRegex(fetch["pin"], r"^([0-9a-f]{40}|[0-9a-f]{64}|)$")

    def test_only_marked_steps_use_sudo(self):
        for phase in self.phases("gcp-b200-before"):
            for step in phase["steps"]:
                self.assertEqual(step["command"][0] == "sudo", step["root"], step)

    def test_the_script_is_one_that_a_shell_reads(self):
        for arguments in ((), ("--nvshmem", "wheel"), ("--nic-handler", "cpu")):
            script = ferry("--root", self.tree("gcp-b200-before"), "--script", *arguments).stdout
            read = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
            self.assertEqual(read.returncode, 0, read.stderr)
            self.assertIn("REBOOT", script)

    def test_selects_phases(self):
        self.assertEqual(list(self.statuses("gcp-b200-before", "--from", "nvshmem")), [7, 8, 9, 10])
        self.assertEqual(list(self.statuses("gcp-b200-before", "--only", "6", "--only", "deepep")), [6, 9])
        answer = ferry("--root", self.tree("gcp-b200-before"), "--only", "coffee")
        self.assertEqual(answer.returncode, 2)
        self.assertIn("'coffee' is no phase, expected a number or one of cuda-toolkit, doca-ofed", answer.stderr)

    def test_acts_on_no_tree(self):
        answer = ferry("--root", self.tree("gcp-b200-before"), "--apply")
        self.assertEqual(answer.returncode, 2)
        self.assertIn("--apply acts on this host and goes with neither --root nor --facts", answer.stderr)

    def test_plans_this_host_and_changes_nothing(self):
        answer = ferry("--stack", "ferry")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("nothing was changed; to act: ferry install --stack ferry", answer.stdout)


if __name__ == "__main__":
    unittest.main()
