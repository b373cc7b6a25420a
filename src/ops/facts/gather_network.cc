#include <algorithm>

#include "ops/facts/gather.hpp"
#include "ops/text.hpp"

namespace ferry::ops::gathering {

namespace {

constexpr const char* kRdma = "/sys/class/infiniband/";
constexpr const char* kNet = "/sys/class/net/";

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// "4: ACTIVE" is ACTIVE, "5: LinkUp" is LinkUp.
Fact<std::string> after_colon(const Fact<std::string>& text) {
  if (!text.is_known()) return text;
  const std::size_t colon = text->find(':');
  return colon == std::string::npos ? text : Fact<std::string>(trim(text->substr(colon + 1)));
}

// "400 Gb/sec (4X NDR)".
Fact<double> rate_of(const Fact<std::string>& text) {
  if (text.is_absent()) return Fact<double>::absent();
  const std::vector<std::string> words = words_of(text.value_or(""));
  if (words.empty()) return Fact<double>::unknown("no rate in its file");
  char* end = nullptr;
  const double rate = std::strtod(words[0].c_str(), &end);
  if (*end != '\0' || !(rate >= 0) || rate > 1e6)
    return Fact<double>::unknown("'" + words[0] + "' is no rate");
  return rate;
}

// "traffic_class" holds "Global tclass=106" and lines of other forms.
Fact<std::int64_t> traffic_class_of(const Fact<std::string>& text) {
  if (text.is_unknown()) return Fact<std::int64_t>::unknown(text.reason());
  const std::string mark = "Global tclass=";
  for (const std::string& line : lines_of(text.value_or(""))) {
    if (!line.starts_with(mark)) continue;
    if (const auto value = parse_whole(trim(line.substr(mark.size())))) return *value;
  }
  if (const auto value = parse_whole(trim(text.value_or("")))) return *value;
  return Fact<std::int64_t>::absent();
}

std::vector<Gid> gids_of(const Root& root, const std::string& port) {
  std::vector<Gid> gids;
  for (const std::string& name : root.names(port + "/gids")) {
    const auto index = parse_whole(name);
    const std::string address = lower(root.read_line(port + "/gids/" + name).value_or(""));
    if (!index || address.find_first_not_of("0:") == std::string::npos) continue;
    gids.push_back({.index = static_cast<int>(*index),
                    .address = address,
                    .type = root.read_line(port + "/gid_attrs/types/" + name).value_or(""),
                    .netdev = root.read_line(port + "/gid_attrs/ndevs/" + name).value_or("")});
  }
  return gids;
}

PortFacts port_of(const Root& root, const std::string& hca, const std::string& number) {
  const std::string path = std::string(kRdma) + hca + "/ports/" + number;
  PortFacts port;
  port.number = static_cast<int>(parse_whole(number).value_or(0));
  port.state = after_colon(root.read_line(path + "/state"));
  port.phys_state = after_colon(root.read_line(path + "/phys_state"));
  port.link_layer = root.read_line(path + "/link_layer");
  port.rate_gbps = rate_of(root.read_line(path + "/rate"));
  port.traffic_class =
      traffic_class_of(root.read(std::string(kRdma) + hca + "/tc/" + number + "/traffic_class"));
  port.gids = gids_of(root, path);
  for (const std::string& counter : root.names(path + "/counters")) {
    const Fact<std::int64_t> value = root.read_number(path + "/counters/" + counter);
    if (value.is_known()) port.counters[counter] = value.value();
  }
  return port;
}

HcaFacts hca_of(const Root& root, const std::string& name) {
  const std::string path = std::string(kRdma) + name;
  HcaFacts hca;
  hca.name = name;
  const Fact<std::string> driver = root.resolve(path + "/device/driver");
  hca.driver = driver.is_known() ? Fact<std::string>(last_part(driver.value())) : driver;
  const Fact<std::string> device = root.resolve(path + "/device");
  hca.pci = device.is_known() ? Fact<std::string>(last_part(device.value())) : device;
  hca.firmware = root.read_line(path + "/fw_ver");
  hca.board = root.read_line(path + "/board_id");
  hca.guid = root.read_line(path + "/node_guid");
  hca.is_virtual = root.exists(path + "/device/physfn");
  const std::vector<std::string> verbs = root.names(path + "/device/infiniband_verbs");
  if (!verbs.empty()) {
    hca.uverbs = verbs.front();
    hca.has_device_node = root.exists("/dev/infiniband/" + verbs.front());
  } else {
    hca.uverbs = Fact<std::string>::unknown(path + "/device/infiniband_verbs is not readable");
  }
  hca.netdevs = root.names(path + "/device/net");
  hca.netdev_mtu = Fact<std::int64_t>::absent();
  for (const std::string& netdev : hca.netdevs) {
    const Fact<std::int64_t> mtu = root.read_number(path + "/device/net/" + netdev + "/mtu");
    if (mtu.is_known() && mtu.value() < hca.netdev_mtu.value_or(INT64_MAX)) hca.netdev_mtu = mtu;
  }
  for (const std::string& port : root.names(path + "/ports"))
    hca.ports.push_back(port_of(root, name, port));
  return hca;
}

// Interfaces that have an IPv4 route, and the one of the default route.
struct Routes {
  Fact<std::vector<std::string>> with_ipv4;
  std::string default_interface;
};

Routes read_routes(const Root& root) {
  Routes routes;
  const Fact<std::string> text = root.read("/proc/net/route");
  if (!text.is_known()) {
    routes.with_ipv4 = Fact<std::vector<std::string>>::unknown("/proc/net/route is not readable");
    return routes;
  }
  std::vector<std::string> names;
  for (const std::string& line : lines_of(text.value())) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 8 || words[0] == "Iface") continue;
    names.push_back(words[0]);
    if (words[1] == "00000000" && words[7] == "00000000") routes.default_interface = words[0];
  }
  routes.with_ipv4 = names;
  return routes;
}

// "fe80... 02 40 20 80 eth0": the scope is the fourth word, 00 is global.
std::vector<std::string> interfaces_with_ipv6(const Root& root) {
  std::vector<std::string> names;
  for (const std::string& line : lines_of(root.read("/proc/net/if_inet6").value_or(""))) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() >= 6 && words[3] == "00") names.push_back(words[5]);
  }
  return names;
}

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void gather_hcas(const Root& root, Facts& facts) {
  const Fact<std::vector<std::string>> names = root.list("/sys/class/infiniband");
  if (names.is_unknown()) {
    facts.hcas = Fact<std::vector<HcaFacts>>::unknown(names.reason());
    return;
  }
  std::vector<HcaFacts> hcas;
  for (const std::string& name : names.value_or({})) hcas.push_back(hca_of(root, name));
  facts.hcas = hcas;
  for (const char* folder : {"/dev/infiniband", "/dev/nvidia-caps-imex-channels"})
    for (const std::string& name : root.names(folder))
      facts.device_nodes.push_back(std::string(folder) + "/" + name);
  for (const char* node : {"/dev/gdrdrv", "/dev/nvidiactl", "/dev/nvidia-uvm"})
    if (root.exists(node)) facts.device_nodes.emplace_back(node);
}

void gather_interfaces(const Root& root, Facts& facts) {
  const Routes routes = read_routes(root);
  const std::vector<std::string> with_ipv6 = interfaces_with_ipv6(root);
  for (const std::string& name : root.names("/sys/class/net")) {
    const std::string path = kNet + name;
    if (!root.is_folder(path)) continue;  // bonding_masters
    InterfaceFacts interface;
    interface.name = name;
    interface.state = root.read_line(path + "/operstate");
    interface.mtu = root.read_number(path + "/mtu");
    interface.is_virtual = !root.exists(path + "/device");
    if (routes.with_ipv4.is_known()) {
      interface.has_ipv4 = has_name(routes.with_ipv4.value(), name);
    } else {
      interface.has_ipv4 = Fact<bool>::unknown(routes.with_ipv4.reason());
    }
    interface.has_ipv6 = has_name(with_ipv6, name);
    interface.has_default_route = name == routes.default_interface;
    interface.rx_bytes = root.read_number(path + "/statistics/rx_bytes");
    interface.tx_bytes = root.read_number(path + "/statistics/tx_bytes");
    facts.interfaces.push_back(interface);
  }
}

}  // namespace ferry::ops::gathering
