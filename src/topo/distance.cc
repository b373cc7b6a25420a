#include "topo/distance.hpp"

#include <algorithm>

namespace ferry::topo {

namespace {

// "0000:00:01.0" hangs on root bus "0000:00".
std::string bus_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

const char* distance_name(Distance distance) noexcept {
  switch (distance) {
    case Distance::kPix: return "PIX";
    case Distance::kPxb: return "PXB";
    case Distance::kPhb: return "PHB";
    case Distance::kNode: return "NODE";
    case Distance::kSys: return "SYS";
  }
  return "?";
}

Distance distance_between(const PciPlace& a, const PciPlace& b) {
  const std::size_t shorter = std::min(a.path.size(), b.path.size());
  std::size_t num_common = 0;
  while (num_common < shorter && a.path[num_common] == b.path[num_common]) ++num_common;
  if (num_common > 0) {
    // Bridges below the last common one, the device itself not counted.
    const auto num_below = [&](const PciPlace& place) {
      return place.path.size() > num_common ? place.path.size() - num_common - 1 : 0;
    };
    return std::max(num_below(a), num_below(b)) <= 1 ? Distance::kPix : Distance::kPxb;
  }
  if (a.numa_node != b.numa_node) return Distance::kSys;
  if (shorter > 0 && bus_of(a.path.front()) == bus_of(b.path.front())) return Distance::kPhb;
  return Distance::kNode;
}

}  // namespace ferry::topo
