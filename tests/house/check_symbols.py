"""Checks that a shared library exports the public interface and nothing else.

    check_symbols.py LIBRARY [--nm NM] [--require NAME]...
    check_symbols.py --self-test COMPILER [--nm NM]

Allowed are ferry:: and ferry_ names with their type information, and weak instantiations of the
standard library, which GCC exports from every C++ library.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

OURS = re.compile(
    r"^(?:ferry_\w+$|(?:(?:typeinfo|typeinfo name|vtable|VTT|construction vtable|guard variable)"
    r" for )?ferry::)"
)
# A template's demangled name starts with its return type.
OURS_TEMPLATE = re.compile(r"^[\w:<>*&, ]+ ferry::\w+")
STANDARD = re.compile(r"\b(?:std|__gnu_cxx)::|^operator (?:new|delete)")
WEAK = {"W", "V", "u"}


def exported(library: str, nm: str) -> list[tuple[str, str]]:
    """(type letter, demangled name) of every symbol that the library defines for others."""
    output = subprocess.run(
        [nm, "-DC", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    symbols = []
    for line in output.splitlines():
        fields = line.split(maxsplit=2)
        if len(fields) == 3:
            symbols.append((fields[1], fields[2]))
    return symbols


def strangers(symbols: list[tuple[str, str]]) -> list[str]:
    found = []
    for letter, name in symbols:
        if OURS.match(name) or OURS_TEMPLATE.match(name):
            continue
        if letter in WEAK and STANDARD.search(name):
            continue
        found.append(f"{letter} {name}")
    return found


def check(library: str, nm: str, required: list[str]) -> int:
    symbols = exported(library, nm)
    failed = 0
    for line in strangers(symbols):
        print(f"{library} exports '{line}', which is not part of the public interface")
        failed = 1
    for name in required:
        if not any(symbol.startswith(name) for _, symbol in symbols):
            print(f"{library} does not export '{name}'")
            failed = 1
    if not failed:
        print(f"{len(symbols)} exported symbols, all of them public")
    return failed


SELF_TEST_SOURCE = """
#include <map>
#include <string>
namespace ferry {
class __attribute__((visibility("default"))) Good { public: virtual ~Good(); std::string s(); };
Good::~Good() {}
std::string Good::s() { return std::map<int, std::string>{{1, "x"}}.at(1); }
namespace inner { int hidden() { return 1; } }
}
extern "C" __attribute__((visibility("default"))) int ferry_good() { return 1; }
"""
SELF_TEST_LEAK = """
namespace other { __attribute__((visibility("default"))) int leaked() { return 1; } }
extern "C" __attribute__((visibility("default"))) int leaked_c() { return 1; }
"""


def self_test(compiler: str, nm: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for name, source in [("good", SELF_TEST_SOURCE), ("bad", SELF_TEST_SOURCE + SELF_TEST_LEAK)]:
            path = pathlib.Path(folder, name + ".cc")
            path.write_text(source, encoding="utf-8")
            library = str(path.with_suffix(".so"))
            subprocess.run(
                [compiler, "-shared", "-fPIC", "-fvisibility=hidden", "-o", library, str(path)],
                check=True,
            )
            results.append(sorted(strangers(exported(library, nm))))
            results.append(check(library, nm, ["ferry::Good::~Good", "ferry_good"]))
        results.append(check(str(pathlib.Path(folder, "good.so")), nm, ["ferry::Gone::Gone"]))
    expected = [[], 0, ["T leaked_c", "T other::leaked()"], 1, 1]
    if results != expected:
        print(f"expected {expected}, got {results}")
        return 1
    print("the leaks and the missing name above were found as expected")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", nargs="?")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--require", action="append", default=[])
    parser.add_argument("--self-test", metavar="COMPILER")
    options = parser.parse_args()
    if options.self_test:
        return self_test(options.self_test, options.nm)
    if not options.library:
        parser.error("a library or --self-test is needed")
    return check(options.library, options.nm, options.require)


if __name__ == "__main__":
    sys.exit(main())
