"""ferry diagnose, from outside: sources, exit codes, JSON; and the list of causes in the guide."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_LINE = "[rank3]: DeepEP error: timeout (dispatch CPU)\n"


def diagnose_stdin(text, *arguments):
    return subprocess.run([program.FERRY, "diagnose", *arguments], input=text, text=True,
                          capture_output=True, env=program.environment(), timeout=60, check=False)


class Diagnose(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_reads_standard_input(self):
        answer = diagnose_stdin(TIMEOUT_LINE)
        self.assertEqual(answer.returncode, 1, answer)
        self.assertIn("-:1: [rank3]", answer.stdout)
        self.assertEqual(diagnose_stdin("all is well\n", "-").returncode, 0)

    def test_reads_many_logs_as_one_run(self):
        late = self.write("late.log", "12:00:09 pidfd_getfd: operation not permitted\n")
        early = self.write("early.log", "12:00:01 No socket interface found\n")
        findings = diagnose_json(late, early)["findings"]
        self.assertEqual([finding["id"] for finding in findings],
                         ["boot.no-interface", "container.pidfd"])

    def test_takes_facts_into_account(self):
        log = self.write("a.log", "Unable to dlopen libmlx5dv\n")
        facts = self.write("facts.json", '{"schema": "ferry.facts/1", "facts": '
                                         '{"hcas": [{"name": "erdma_0", "driver": "erdma"}]}}')
        without = diagnose_json(log)["findings"][0]
        given = diagnose_json(log, "--facts", facts)["findings"][0]
        self.assertEqual((without["verdict"], given["verdict"]), ("warn", "fail"))

    def test_refuses_what_it_cannot_read(self):
        answer = program.run("diagnose", os.path.join(self.folder.name, "gone.log"))
        self.assertEqual(answer.code, 2, answer)
        self.assertIn("gone.log': No such file or directory", answer.err)
        answer = program.run("diagnose", self.folder.name)
        self.assertEqual(answer.code, 2, answer)
        self.assertIn("it is a folder", answer.err)

    def test_prints_no_control_characters_of_a_log(self):
        answer = diagnose_stdin("\x1b]0;gotcha\x07\x1b[2Jpidfd_getfd: operation not permitted\x08\n")
        self.assertNotRegex(answer.stdout, r"[\x00-\x09\x0b-\x1f\x7f]")

    def test_its_causes_are_those_of_the_guide(self):
        guide = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
        _, found, listed = guide.partition("<!-- ferry diagnose --causes -->\n\n")
        self.assertTrue(found)
        answer = program.run("diagnose", "--causes")
        self.assertEqual(listed.strip(), answer.out.strip(),
                         "the guide differs; put the output of `ferry diagnose --causes` there")


def diagnose_json(*arguments):
    answer = program.run("diagnose", "--json", *arguments)
    assert answer.code == 1, answer
    return json.loads(answer.out)


if __name__ == "__main__":
    unittest.main()
