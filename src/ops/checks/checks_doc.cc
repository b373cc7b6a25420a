#include <fmt/format.h>

#include "ops/checks/doctor.hpp"

namespace ferry::ops {

namespace {

const char* stack_name(Stack stack) {
  switch (stack) {
    case Stack::kBoth: return "both stacks";
    case Stack::kDeepEp: return "DeepEP";
    case Stack::kFerry: return "FerryEP";
  }
  return "";
}

std::string section_of(const Check& check) {
  std::string text = fmt::format("### <a id=\"{0}\"></a>{0}: {1}\n\n", check.id, check.title);
  text += fmt::format("- Judged: {}.\n- Why: {}.\n- Fix: {}.\n- For: {}", check.rule, check.why,
                      check.fix, stack_name(check.stack));
  if (*check.catches != '\0') text += fmt::format("; answers reports {}", check.catches);
  return text + ".\n\n";
}

}  // namespace

std::string checks_markdown() {
  std::string text =
      "# What `ferry doctor` checks\n\n"
      "This page is printed from the table of checks (`src/ops/checks/`); a test fails when it is\n"
      "stale. To renew it: build the target `update_checks_doc`.\n\n"
      "Verdicts: `ok`, `warn`, `fail`, `unknown` (the facts do not say, and the fix says how to "
      "find\n"
      "out; inside a container what cannot be read is unknown, never ok), `not-applicable`. The\n"
      "program exits with 1 if any verdict is fail. `ferry doctor --only nvshmem` runs the checks\n"
      "whose id begins so, `--for deepep|ferry` those of one stack, `--multi-node` judges what "
      "only\n"
      "the network needs harder. Report ids: S1 to S8 are the eight problems of the install "
      "guide,\n"
      "the rest are classes of field reports (A builds, B versions, C driver, D NICs, E "
      "bootstrap,\n"
      "F hangs, L NVLink domains, M PCIe only, N containers, O speed, Q device sharing).\n\n";
  for (const CheckGroup& group : all_checks()) {
    text += fmt::format("## {}\n\n", group.title);
    for (const Check& check : group.checks) text += section_of(check);
  }
  text +=
      "## Between hosts\n\n"
      "With several files of facts (`ferry doctor --facts FOLDER`) these must agree:\n\n"
      "| id | compared | if different | why |\n|---|---|---|---|\n";
  for (const Comparison& row : all_comparisons())
    text += fmt::format("| <a id=\"{0}\"></a>{0} | {1} | {2} | {3} |\n", row.id, row.title,
                        verdict_name(row.if_different), row.why);
  return text +
         "| <a id=\"compare.gpu-sharing\"></a>compare.gpu-sharing | devices of the ranks of one "
         "host | "
         "fail | NVSHMEM wants a GPU of its own for each process |\n";
}

}  // namespace ferry::ops
