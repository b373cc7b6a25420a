#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/facts_source.hpp"
#include "ops/finding.hpp"
#include "ops/topology/drawing.hpp"
#include "ops/topology/nccl_xml.hpp"

namespace ferry::cli {

namespace {

struct TopoOptions {
  ops::FactsSource source;
  std::string topology_file;
  std::string format = "table";
  bool is_links_only = false;
  bool is_json = false;
};

std::string show(const TopoOptions& options, const ops::Facts& facts, const ops::NicPlan& plan) {
  if (options.is_json || options.format == "json")
    return ops::print_json(ops::plan_json(facts, plan));
  if (options.is_links_only) return ops::format_links(facts, plan);
  if (options.format == "svg") return ops::draw_svg(facts, plan);
  if (options.format == "xml") return ops::write_nccl_topology(facts);
  if (options.format == "mapping") return ops::deep_ep_mapping(plan) + "\n";
  if (options.format == "nvshmem") return ops::nvshmem_pe_mapping(plan) + "\n";
  if (options.format == "nccl") return ops::nccl_ib_hca(plan) + "\n";
  return ops::format_links(facts, plan) + "\n" + ops::format_plan(plan);
}

int run_topo(const TopoOptions& options) {
  ops::Facts facts = ops::load_facts(options.source);
  if (!options.topology_file.empty()) ops::apply_topology_file(options.topology_file, facts);
  fmt::print("{}", show(options, facts, ops::plan_nics(facts)));
  return kFine;
}

}  // namespace

void add_topo_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("topo", "How GPUs and NICs are linked, and which NIC each GPU should use");
  const auto options = std::make_shared<TopoOptions>();
  add_facts_source(*command, options->source);
  command
      ->add_option("--topology", options->topology_file,
                   "Take PCI switches from this NCCL topology file (NCCL_TOPO_FILE)")
      ->type_name("FILE");
  command
      ->add_option("--format", options->format,
                   "table, svg, json, xml (an NCCL topology file), or the value of a variable: "
                   "mapping (DEEP_EP_DEVICE_TO_HCA_MAPPING), nvshmem (NVSHMEM_HCA_PE_MAPPING), "
                   "nccl (NCCL_IB_HCA)")
      ->check(CLI::IsMember({"table", "svg", "json", "xml", "mapping", "nvshmem", "nccl"}))
      ->capture_default_str();
  command->add_flag("--links", options->is_links_only, "Show the matrix of links alone");
  command->add_flag("--json", options->is_json, "Print one JSON object");
  command->callback(
      [&invocation, options] { invocation.action = [options] { return run_topo(*options); }; });
}

}  // namespace ferry::cli
