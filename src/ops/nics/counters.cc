#include "ops/nics/counters.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/human.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr const char* kDevices = "/sys/class/infiniband";
constexpr std::uint64_t kBytesPerWord = 4;
constexpr std::uint64_t kIdleBytes = std::uint64_t{1} << 20;

std::uint64_t bytes_of(const Root& root, const std::string& file) {
  const Fact<std::int64_t> words = root.read_number(file);
  return words.is_known() && words.value() > 0
             ? static_cast<std::uint64_t>(words.value()) * kBytesPerWord
             : 0;
}

std::string amount(std::uint64_t bytes, double seconds) {
  if (seconds <= 0) return human_bytes(static_cast<std::int64_t>(bytes));
  return fmt::format("{:.2f} GB/s", static_cast<double>(bytes) / seconds / 1e9);
}

std::string names(const std::vector<PortBytes>& ports) {
  std::vector<std::string> all;
  for (const PortBytes& port : ports) all.push_back(port.name);
  return all.empty() ? "none" : join(all, ", ");
}

}  // namespace

std::vector<PortBytes> read_port_bytes(const Root& root) {
  std::vector<PortBytes> ports;
  for (const std::string& hca : root.names(kDevices)) {
    const std::string folder = fmt::format("{}/{}/ports", kDevices, hca);
    for (const std::string& number : root.names(folder)) {
      const std::string port = folder + "/" + number;
      ports.push_back({.name = hca + ":" + number,
                       .is_up = contains(root.read_line(port + "/state").value_or(""), "ACTIVE"),
                       .sent = bytes_of(root, port + "/counters/port_xmit_data"),
                       .received = bytes_of(root, port + "/counters/port_rcv_data")});
    }
  }
  return ports;
}

std::vector<PortBytes> difference(const std::vector<PortBytes>& before,
                                  const std::vector<PortBytes>& after) {
  std::vector<PortBytes> moved;
  for (const PortBytes& now : after) {
    const auto then = std::find_if(before.begin(), before.end(),
                                   [&](const PortBytes& port) { return port.name == now.name; });
    if (then == before.end()) continue;
    moved.push_back({.name = now.name,
                     .is_up = now.is_up,
                     .sent = now.sent >= then->sent ? now.sent - then->sent : now.sent,
                     .received = now.received >= then->received ? now.received - then->received
                                                                : now.received});
  }
  return moved;
}

std::string format_ports(const std::vector<PortBytes>& ports, double seconds) {
  if (ports.empty()) return "this host has no RDMA device\n";
  constexpr std::uint64_t kBarColumns = 30;
  std::uint64_t most = 1;
  std::size_t width = 0;
  for (const PortBytes& port : ports) {
    most = std::max(most, port.sent + port.received);
    width = std::max(width, port.name.size());
  }
  std::string out;
  for (const PortBytes& port : ports) {
    const auto columns = static_cast<std::size_t>(static_cast<double>(port.sent + port.received) /
                                                  static_cast<double>(most) * kBarColumns);
    out +=
        fmt::format("{:<{}}  {:<4}  sent {:>12}  received {:>12}  {}\n", escape_controls(port.name),
                    width, port.is_up ? "up" : "down", amount(port.sent, seconds),
                    amount(port.received, seconds), std::string(columns, '#'));
  }
  return out;
}

nlohmann::ordered_json ports_json(const std::vector<PortBytes>& ports, double seconds) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PortBytes& port : ports)
    list.push_back({{"name", port.name},
                    {"is_up", port.is_up},
                    {"sent_bytes", port.sent},
                    {"received_bytes", port.received},
                    {"seconds", seconds}});
  return list;
}

Finding judge_moved(const std::vector<PortBytes>& moved) {
  std::vector<PortBytes> busy;
  std::vector<PortBytes> idle;
  for (const PortBytes& port : moved)
    if (port.is_up) (port.sent + port.received >= kIdleBytes ? busy : idle).push_back(port);
  Finding finding{
      .id = "nics.moved",
      .verdict = Verdict::kOk,
      .title = "every NIC carries traffic",
      .seen = fmt::format("moved: {}; idle: {}", names(busy), names(idle)),
      .why = "GPUs that share a NIC halve the bandwidth, or worse (problem 3 of the guide)",
      .fix = "",
      .doc = "docs/checks.md#nic.assignment"};
  if (busy.empty() && idle.empty()) {
    finding.verdict = Verdict::kNotApplicable;
    finding.seen = "no port is up";
  } else if (!idle.empty()) {
    finding.verdict = busy.size() * 2 < busy.size() + idle.size() ? Verdict::kFail : Verdict::kWarn;
    finding.fix = "export DEEP_EP_DEVICE_TO_HCA_MAPPING=$(ferry topo --format mapping)";
  }
  return finding;
}

int run_program(const std::vector<std::string>& words) {
  std::vector<std::string> copy = words;
  std::vector<char*> arguments;
  for (std::string& word : copy) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> variables = child_environment({});
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environment.data());
  FERRY_CHECK(error == 0, ErrorCode::kSystem, "cannot start '{}': {}", words.front(),
              errno_text(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ferry::ops
