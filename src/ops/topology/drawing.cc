#include "ops/topology/drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ops/finding.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

std::string gpu_label(const GpuFacts& gpu) { return fmt::format("GPU{}", gpu.index); }

// Columns as wide as their widest cell, two blanks between them.
std::string format_columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string nic_of(const NicPlan& plan, std::size_t gpu) {
  const std::string name = nvshmem_hca_list(plan, gpu);
  return name.empty() ? "none" : name;
}

std::string distance_of(const NicPlan& plan, std::size_t gpu) {
  const int nic = plan.nic_of[gpu];
  return nic < 0 ? "-" : topo::distance_name(plan.distances[gpu][static_cast<std::size_t>(nic)]);
}

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : escape_controls(text)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string svg_box(
    double x, double y, const std::string& title, const std::string& detail, const char* fill) {
  return fmt::format(
      "<rect x=\"{0}\" y=\"{1}\" width=\"132\" height=\"44\" rx=\"6\" fill=\"{2}\"/>"
      "<text x=\"{3}\" y=\"{4}\" font-weight=\"bold\">{5}</text>"
      "<text x=\"{3}\" y=\"{6}\" font-size=\"11\">{7}</text>\n",
      x, y, fill, x + 66, y + 19, xml_text(title), y + 35, xml_text(detail));
}

}  // namespace

std::string format_links(const Facts& facts, const NicPlan& plan) {
  std::vector<std::vector<std::string>> rows(1, {""});
  for (const GpuFacts& gpu : plan.gpus) rows[0].push_back(gpu_label(gpu));
  for (const NicPort& nic : plan.nics) rows[0].push_back(escape_controls(nic.hca));
  for (std::size_t i = 0; i < plan.gpus.size(); ++i) {
    std::vector<std::string> row = {gpu_label(plan.gpus[i])};
    for (std::size_t j = 0; j < plan.gpus.size(); ++j)
      row.push_back(i == j ? "X" : gpu_link(facts, plan.gpus[i], plan.gpus[j]));
    for (const topo::Distance distance : plan.distances[i])
      row.emplace_back(topo::distance_name(distance));
    rows.push_back(row);
  }
  if (plan.gpus.empty()) return "this host has no GPU\n";
  return format_columns(rows) +
         "\nNV#: that many NVLinks; PIX: one switch between; PXB: several; PHB: a host bridge;\n"
         "NODE: host bridges of one NUMA node; SYS: the link between NUMA nodes\n";
}

std::string format_plan(const NicPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t gpu = 0; gpu < plan.gpus.size(); ++gpu)
    rows.push_back({gpu_label(plan.gpus[gpu]), plan.gpus[gpu].pci,
                    escape_controls(plan.gpus[gpu].name.value_or("?")), "->",
                    escape_controls(nic_of(plan, gpu)), distance_of(plan, gpu)});
  std::string out = format_columns(rows);
  for (const LeftOutNic& nic : plan.left_out)
    out += fmt::format("left out: {}: {}\n", escape_controls(nic.hca), escape_controls(nic.reason));
  if (plan.is_empty()) return out + "no plan: it needs a GPU and an RDMA port that is up\n";
  if (plan.num_used_by_nearest() < plan.num_used())
    out += fmt::format(
        "taking each GPU's nearest NIC alone would use {} of {} NICs: set the mapping\n",
        plan.num_used_by_nearest(), plan.nics.size());
  if (plan.gpus.size() > plan.nics.size())
    out += fmt::format("{} GPUs share {} NICs\n", plan.gpus.size(), plan.nics.size());
  out += fmt::format("\nDEEP_EP_DEVICE_TO_HCA_MAPPING={}\n", deep_ep_mapping(plan));
  out += fmt::format("NVSHMEM_HCA_PE_MAPPING={}\n", nvshmem_pe_mapping(plan));
  out += fmt::format("NVSHMEM_HCA_LIST={}   (of the process with GPU 0; each process its own)\n",
                     nvshmem_hca_list(plan, 0));
  return out + fmt::format("NCCL_IB_HCA={}\n", nccl_ib_hca(plan));
}

nlohmann::ordered_json plan_json(const Facts& facts, const NicPlan& plan) {
  nlohmann::ordered_json json = json_preamble("ferry.topo/1", facts.host.name);
  json["gpus"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < plan.gpus.size(); ++i) {
    nlohmann::ordered_json gpu = {{"index", plan.gpus[i].index},
                                  {"pci", plan.gpus[i].pci},
                                  {"name", plan.gpus[i].name.value_or("")},
                                  {"nic", nvshmem_hca_list(plan, i)},
                                  {"distance", distance_of(plan, i)}};
    for (std::size_t j = 0; j < plan.gpus.size(); ++j)
      gpu["links"].push_back(i == j ? "X" : gpu_link(facts, plan.gpus[i], plan.gpus[j]));
    for (const topo::Distance distance : plan.distances[i])
      gpu["nic_distances"].push_back(topo::distance_name(distance));
    json["gpus"].push_back(gpu);
  }
  json["nics"] = nlohmann::ordered_json::array();
  for (const NicPort& nic : plan.nics)
    json["nics"].push_back({{"name", nic.name()},
                            {"pci", nic.pci},
                            {"link_layer", nic.link_layer},
                            {"rate_gbps", nic.rate_gbps}});
  json["left_out"] = nlohmann::ordered_json::array();
  for (const LeftOutNic& nic : plan.left_out)
    json["left_out"].push_back({{"name", nic.hca}, {"reason", nic.reason}});
  json["nics_used"] = plan.num_used();
  json["nics_used_by_nearest"] = plan.num_used_by_nearest();
  json["variables"] = {{"DEEP_EP_DEVICE_TO_HCA_MAPPING", deep_ep_mapping(plan)},
                       {"NVSHMEM_HCA_PE_MAPPING", nvshmem_pe_mapping(plan)},
                       {"NCCL_IB_HCA", nccl_ib_hca(plan)}};
  return json;
}

std::string draw_svg(const Facts& facts, const NicPlan& plan) {
  constexpr double kStep = 148;
  const auto num_columns = static_cast<double>(
      std::max<std::size_t>({plan.gpus.size(), plan.nics.size(), std::size_t{2}}));
  const double width = num_columns * kStep + 16;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} 260\" width=\"{0}\" "
      "height=\"260\" font-family=\"sans-serif\" font-size=\"13\" text-anchor=\"middle\">\n"
      "<title>GPUs and NICs of {1}</title>\n<rect width=\"{0}\" height=\"260\" fill=\"#fff\"/>\n",
      width, xml_text(facts.host.name));
  for (std::size_t gpu = 0; gpu < plan.gpus.size(); ++gpu) {
    if (plan.nic_of[gpu] < 0) continue;
    const double from = 16 + static_cast<double>(gpu) * kStep + 66;
    const double to = 16 + static_cast<double>(plan.nic_of[gpu]) * kStep + 66;
    const auto distance =
        static_cast<int>(plan.distances[gpu][static_cast<std::size_t>(plan.nic_of[gpu])]);
    out += fmt::format(
        "<line x1=\"{}\" y1=\"100\" x2=\"{}\" y2=\"180\" stroke=\"#444\" stroke-width=\"{}\"/>"
        "<text x=\"{}\" y=\"144\" fill=\"#06c\" font-size=\"11\">{}</text>\n",
        from, to, 5 - distance, (from + to) / 2 + 22, distance_of(plan, gpu));
  }
  for (std::size_t gpu = 0; gpu < plan.gpus.size(); ++gpu)
    out += svg_box(16 + static_cast<double>(gpu) * kStep, 56, gpu_label(plan.gpus[gpu]),
                   plan.gpus[gpu].pci, "#d8f0c8");
  for (std::size_t nic = 0; nic < plan.nics.size(); ++nic)
    out += svg_box(16 + static_cast<double>(nic) * kStep, 180, plan.nics[nic].name(),
                   plan.nics[nic].pci, "#cfe2ff");
  if (plan.gpus.size() > 1)
    out += fmt::format("<text x=\"{}\" y=\"34\">GPU0 to GPU1: {}</text>\n", width / 2,
                       gpu_link(facts, plan.gpus[0], plan.gpus[1]));
  return out + "</svg>\n";
}

}  // namespace ferry::ops
