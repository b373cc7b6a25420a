"""The command line: help, version, environment, wrong usage."""

import unittest

import program


class Command(unittest.TestCase):
    def refuse(self, code, message, *arguments, **variables):
        answer = program.run(*arguments, **variables)
        self.assertEqual(answer.code, code, answer)
        self.assertEqual(answer.err, message + "\n")
        self.assertEqual(answer.out, "")

    def test_prints_help_on_stdout(self):
        for arguments in (["--help"], ["bench", "--help"], ["env", "--help"]):
            answer = program.run(*arguments)
            self.assertEqual(answer.code, 0, answer)
            self.assertIn("Usage:", answer.out)
            self.assertEqual(answer.err, "")

    def test_prints_its_version(self):
        self.assertRegex(program.run("--version").out, r"^ferry \d+\.\d+\.\d+\n$")
        self.assertRegex(program.run("version").out, r"^ferry \d+\.\d+\.\d+\n$")
        self.assertIn("ferry_version", program.run("version", "--json").json())

    def test_explains_the_environment(self):
        answer = program.run("env", "--explain", FERRY_TIMEOUT_MS="1234", FERRY_SECRET="hush" * 8)
        self.assertEqual(answer.code, 0, answer)
        self.assertRegex(answer.out, r"(?m)^FERRY_TIMEOUT_MS +1234 +environment ")
        self.assertNotIn("hush", answer.out + answer.err)

    def test_explains_the_environment_as_json(self):
        variables = program.run("env", "--explain", "--json").json()["variables"]
        names = [variable["name"] for variable in variables]
        self.assertIn("FERRY_TIMEOUT_MS", names)
        self.assertEqual({variable["source"] for variable in variables}, {"default"})

    def test_refuses_what_it_does_not_know(self):
        self.refuse(2, "ferry error cli: a subcommand is required; try: ferry --help")
        self.refuse(2, "ferry error cli: the following argument was not expected: --bogus; "
                       "try: ferry --help", "bench", "--bogus")
        answer = program.run("bench", "--layout", "by-row")
        self.assertEqual(answer.code, 2, answer)
        self.assertIn("'by-row' is not one of by-expert|by-rank|padded", answer.err)

    def test_refuses_a_malformed_variable(self):
        answer = program.run("bench", FERRY_TIMEOUT_MS="30s")
        self.assertEqual(answer.code, 2, answer)
        self.assertIn("FERRY_TIMEOUT_MS", answer.err)
        self.assertIn("'30s'", answer.err)


if __name__ == "__main__":
    unittest.main()
