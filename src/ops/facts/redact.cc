#include "ops/facts/redact.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr const char* kRedacted = "redacted";

void hide(Fact<std::string>& fact) {
  if (fact.is_known()) fact = kRedacted;
}

// Three dots between numbers: an IPv4 address. Colons and hexadecimal digits: an IPv6 one.
bool is_address(const std::string& word) {
  const std::vector<std::string> parts = split(word, '.');
  if (parts.size() == 4) {
    bool is_ipv4 = true;
    for (const std::string& part : parts) is_ipv4 = is_ipv4 && parse_whole(part).has_value();
    if (is_ipv4) return true;
  }
  return word.find_first_not_of("0123456789abcdefABCDEF:") == std::string::npos &&
         split(word, ':').size() > 2;
}

// "/home/alice/x" is "/home/user/x", wherever it stands.
std::string hide_users(std::string text) {
  const std::string mark = "/home/";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const std::size_t begin = at + mark.size();
    const std::size_t end = text.find_first_of("/:,; \"'", begin);
    const std::size_t length = (end == std::string::npos ? text.size() : end) - begin;
    // GKE's own folder names nobody.
    if (length > 0 && text.compare(begin, length, "kubernetes") != 0)
      text.replace(begin, length, "user");
  }
  return text;
}

constexpr std::array kAddressVariables = {"MASTER_ADDR", "KUBERNETES_SERVICE_HOST", "FERRY_ADDRESS",
                                          "NCCL_COMM_ID"};

void hide_variables(ProcessFacts& process, const std::string& host) {
  for (auto& [name, value] : process.environment) {
    value = hide_users(value);
    bool is_named = !host.empty() && contains(value, host);
    for (const char* variable : kAddressVariables) is_named = is_named || name == variable;
    const bool is_list_of_hosts = contains(name, "NODELIST") || contains(name, "HOSTS");
    if (is_named || is_list_of_hosts || is_address(value)) value = kRedacted;
  }
}

// Keeps what class of address it is, which is all that checks look at.
std::string hide_gid(const std::string& address) {
  if (address.starts_with("fe80")) return "fe80:redacted";
  return contains(address, ":ffff:") ? "ffff:redacted" : kRedacted;
}

}  // namespace

void redact(Facts& facts) {
  const std::string host = facts.host.name;
  facts.host.name = kRedacted;
  hide(facts.host.machine_id);
  hide(facts.host.boot_id);
  hide(facts.host.cmdline);
  hide_variables(facts.process, host);
  std::vector<GpuFacts> gpus = facts.gpu_list();
  for (GpuFacts& gpu : gpus) hide(gpu.uuid);
  if (facts.gpus.is_known()) facts.gpus = gpus;
  std::vector<HcaFacts> hcas = facts.hca_list();
  for (HcaFacts& hca : hcas) {
    hide(hca.guid);
    for (PortFacts& port : hca.ports)
      for (Gid& gid : port.gids) gid.address = hide_gid(gid.address);
  }
  if (facts.hcas.is_known()) facts.hcas = hcas;
  SoftwareFacts& software = facts.software;
  for (LibraryFacts& library : software.libraries) {
    library.path = hide_users(library.path);
    library.file = hide_users(library.file);
  }
  for (PythonPackage& package : software.python) package.path = hide_users(package.path);
  for (ExtensionFacts& extension : software.extensions) {
    extension.path = hide_users(extension.path);
    extension.runpath = hide_users(extension.runpath);
  }
  for (CheckoutFacts& checkout : software.checkouts) checkout.path = hide_users(checkout.path);
}

}  // namespace ferry::ops
