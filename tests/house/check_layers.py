"""Checks the house rules that a compiler does not: who may include and link whom.

    check_layers.py SOURCE_DIR     prints one line per violation, exit 1 if there is any
    check_layers.py --self-test    proves on a fabricated tree that each rule can fail
"""

import pathlib
import re
import sys
import tempfile

# base < layout < {plan, topo, boot} < ...: a folder includes only folders of a lower row.
ROWS = [
    ["base"],
    ["layout"],
    ["plan", "topo", "boot"],
    ["memory"],
    ["fabric"],
    ["engine"],
    ["cpu", "cuda"],
    ["exchange"],
    ["capi", "ops", "bench"],
    ["cli"],
]
ROW_OF = {folder: row for row, folders in enumerate(ROWS) for folder in folders}
LINE = " < ".join(row[0] if len(row) == 1 else "{" + ", ".join(row) + "}" for row in ROWS)

SOURCE_SUFFIXES = {".hpp", ".h", ".cc", ".c", ".cuh", ".cu"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\b|\benviron\b")
# One file may read the environment, and one folder may use the tests' oracle (with its numbers).
ENVIRONMENT_READER = "src/base/env.cc"
ORACLE = re.compile(r"(?:^|/)support/oracle\w*\.hpp$")

C_HEADERS = """assert ctype errno float inttypes limits math setjmp signal stdalign stdarg stdbool
    stddef stdint stdio stdlib string time""".split()
VENDOR_NAMES = re.compile(
    r"\b(?:cu(?:da|blas|rand)?[A-Z]\w*|CU[a-z]\w+|CUDA_\w+|nccl\w+|nvshmem\w*|nvml\w+|uc[pst]_\w+"
    r"|ibv_\w+|MPI_\w+|at::\w+|torch::\w+|c10::\w+)\b"
)


def without_comments(text: str, keep_strings: bool) -> str:
    """Blanks comments (and string literals), keeping every line where it is."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^()\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL,
    )

    def blank(match: re.Match) -> str:
        found = match.group(0)
        is_comment = found.startswith("/")
        if keep_strings and not is_comment:
            return found
        return "\n" * found.count("\n") if "\n" in found else " "

    return token.sub(blank, text)


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def check_source(root: pathlib.Path, path: pathlib.Path) -> list[str]:
    name = path.relative_to(root).as_posix()
    folder = path.relative_to(root / "src").parts[0]
    text = path.read_text(encoding="utf-8")
    found = []
    if folder not in ROW_OF:
        return [f"{name}: folder '{folder}' has no place in the line {LINE}"]

    code = without_comments(text, keep_strings=True)
    for match in INCLUDE.finditer(code):
        where = f"{name}:{line_of(code, match.start())}"
        bracket, target = match.groups()
        first = target.split("/")[0]
        if bracket == "<" and ("/" not in target or first not in [*ROW_OF, "ferry"]):
            continue  # the system's
        if ORACLE.search(target):
            if folder != "bench":
                found.append(f"{where}: only src/bench may include the oracle, not src/{folder}")
        elif first == "ferry":
            if not (root / "include" / target).is_file():
                found.append(f"{where}: '{target}' is not a public header")
        elif ".." in target or "/" not in target or first not in ROW_OF:
            found.append(f"{where}: '{target}' is not a path from src/ or include/")
        elif first != folder and ROW_OF[first] >= ROW_OF[folder]:
            found.append(f"{where}: src/{folder} includes '{target}' against the line {LINE}")

    if name != ENVIRONMENT_READER:
        bare = without_comments(text, keep_strings=False)
        for match in ENVIRONMENT.finditer(bare):
            found.append(
                f"{name}:{line_of(bare, match.start())}: '{match.group(0)}' outside "
                f"{ENVIRONMENT_READER}"
            )
    return found


def check_links(root: pathlib.Path, path: pathlib.Path) -> list[str]:
    name = path.relative_to(root).as_posix()
    folder = path.relative_to(root / "src").parts[0]
    text = re.sub(r"#[^\n]*", "", path.read_text(encoding="utf-8"))
    found = []
    for match in re.finditer(r"\bferry_([a-z]+)\b", text):
        target = match.group(1)
        if folder in ROW_OF and target in ROW_OF and target != folder:
            if ROW_OF[target] >= ROW_OF[folder]:
                found.append(
                    f"{name}:{line_of(text, match.start())}: src/{folder} links ferry_{target} "
                    f"against the line {LINE}"
                )
    return found


def check_public_header(root: pathlib.Path, path: pathlib.Path) -> list[str]:
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    code = without_comments(text, keep_strings=True)
    found = []
    for match in INCLUDE.finditer(code):
        where = f"{name}:{line_of(code, match.start())}"
        bracket, target = match.groups()
        if bracket == '"':
            if not target.startswith("ferry/") or not (root / "include" / target).is_file():
                found.append(f"{where}: a public header includes '{target}'")
        elif not re.fullmatch(r"[a-z_0-9]+", target):
            if not (target.endswith(".h") and target[:-2] in C_HEADERS):
                found.append(f"{where}: a public header includes '{target}'")
    bare = without_comments(text, keep_strings=False)
    for match in VENDOR_NAMES.finditer(bare):
        found.append(
            f"{name}:{line_of(bare, match.start())}: vendor name '{match.group(0)}' in a public "
            "header"
        )
    return found


def check_tree(root: pathlib.Path) -> list[str]:
    found = []
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in SOURCE_SUFFIXES:
            found += check_source(root, path)
        elif path.name == "CMakeLists.txt":
            found += check_links(root, path)
    for path in sorted((root / "include").rglob("*")):
        if path.is_file():
            found += check_public_header(root, path)
    return found


def self_test() -> int:
    """Each file below breaks one rule, or none, and must be judged so."""
    cases = [
        # (path, content, part of the expected violation; None: no violation)
        ("src/base/a.hpp", '#include <string>\n#include "ferry/ok.hpp"\n', None),
        ("src/plan/a.cc", '#include "base/a.hpp"\n#include "plan/b.hpp"\n', None),
        ("src/cpu/a.cc", '// #include "cli/x.hpp"\nconst char* s = "getenv";\n', None),
        ("src/base/env.cc", 'auto v = std::getenv("X"); extern char** environ;\n', None),
        ("src/bench/a.cc", '#include "support/oracle.hpp"\n', None),
        ("src/exchange/CMakeLists.txt", "ferry_module(exchange DEPENDS ferry_cpu)\n", None),
        ("include/ferry/ok.hpp", "#include <cstdint>\n#include <stddef.h>\n// cudaStream_t\n", None),
        ("src/base/up.hpp", '\n#include "plan/b.hpp"\n', "up.hpp:2: src/base includes 'plan/b.hpp'"),
        ("src/plan/sibling.cc", '#include "boot/b.hpp"\n', "src/plan includes 'boot/b.hpp'"),
        ("src/cpu/sibling.cc", '#include "cuda/b.hpp"\n', "src/cpu includes 'cuda/b.hpp'"),
        ("src/ops/sibling.cc", "#include <bench/b.hpp>\n", "src/ops includes 'bench/b.hpp'"),
        ("src/memory/up.cuh", '#include "cli/b.hpp"\n', "src/memory includes 'cli/b.hpp'"),
        ("src/misc/a.cc", "\n", "folder 'misc' has no place"),
        ("src/boot/relative.cc", '#include "b.hpp"\n', "'b.hpp' is not a path from src/"),
        ("src/boot/dots.cc", '#include "../plan/b.hpp"\n', "'../plan/b.hpp' is not a path"),
        ("src/boot/foreign.cc", '#include "elsewhere/b.hpp"\n', "'elsewhere/b.hpp' is not a path"),
        ("src/boot/gone.cc", '#include "ferry/gone.hpp"\n', "'ferry/gone.hpp' is not a public"),
        ("src/exchange/oracle.cc", '#include "support/oracle.hpp"\n', "only src/bench may include"),
        ("src/boot/env.cc", 'auto v = ::getenv("X");\n', "env.cc:1: 'getenv' outside"),
        ("src/cli/env.cc", "char** e = environ;\n", "'environ' outside"),
        ("src/layout/CMakeLists.txt", "ferry_module(layout DEPENDS ferry_boot)\n",
         "src/layout links ferry_boot"),
        ("include/ferry/vendor.hpp", "#include <cuda_runtime.h>\n", "includes 'cuda_runtime.h'"),
        ("include/ferry/inner.hpp", '#include "base/a.hpp"\n', "public header includes 'base/a.hpp'"),
        ("include/ferry/type.hpp", "void f(cudaStream_t stream);\n", "vendor name 'cudaStream_t'"),
        ("include/ferry/handle.h", "typedef struct ncclComm* c;\n", "vendor name 'ncclComm'"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, content, _ in cases:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        found = check_tree(root)
    wrong = []
    for name, _, expected in cases:
        of_file = [line for line in found if line.startswith(name + ":")]
        if expected is None and of_file:
            wrong.append(f"{name}: expected no violation, got {of_file}")
        if expected is not None and not (len(of_file) == 1 and expected in of_file[0]):
            wrong.append(f"{name}: expected '{expected}', got {of_file}")
    print("\n".join(wrong) if wrong else f"{len(cases)} fabricated files judged as expected")
    return 1 if wrong else 0


def main(arguments: list[str]) -> int:
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = check_tree(pathlib.Path(arguments[0]))
    print("\n".join(found) if found else f"no violation of {LINE}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
