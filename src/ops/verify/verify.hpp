#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/facts/facts.hpp"
#include "ops/facts/source.hpp"
#include "ops/finding.hpp"

namespace ferry::ops {

struct VerifyOptions {
  std::string stack = "deepep";  // deepep, ferry
  std::string prefix = "/opt/deepep";
  std::vector<std::string> peers;  // the other nodes; this one is node_rank of peers + 1
  int node_rank = 0;
  std::string address;      // of node 0; empty: this host's name
  bool is_listing = false;  // print the lines of the tests, run none
  bool is_json = false;
  FactsSource source;  // with a root or files nothing is run
};

// Prints findings to stdout. 0: the stack is proven as far as this host allows; 1: something
// failed.
int run_verify(const VerifyOptions& options);

// What the facts alone say: HCA names and ports, driver option, PR #466's symbol.
[[nodiscard]] std::vector<Finding> check_installed(const Facts& facts);

// The command of DeepEP's test on one of `nodes` nodes, for a shell.
[[nodiscard]] std::string test_line(const VerifyOptions& options, int nodes, int node_rank);

// One finding per figure of a test's output, beside what was published.
[[nodiscard]] std::vector<Finding> judge_figures(const std::string& output,
                                                 int nodes,
                                                 const Facts& facts);

// Which NICs moved between two readings of the facts; all must, each in a like share.
[[nodiscard]] Finding judge_counters(const Facts& before, const Facts& after);

// What `nvshmem-info -a` says of IBGDA.
[[nodiscard]] Finding judge_nvshmem_info(const std::string& output);

}  // namespace ferry::ops
