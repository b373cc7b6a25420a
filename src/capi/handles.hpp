#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "ferry/exchange.hpp"
#include "ferry/ferry.h"
#include "ferry/group.hpp"

// What the opaque handles of ferry.h point at. Each is made with new and freed by
// ferry_<type>_free().

struct ferry_group {
  ferry::Group group;
};

struct ferry_gathered {
  std::vector<std::vector<std::byte>> by_rank;
};

struct ferry_exchange {
  ferry::Exchange exchange;
};

struct ferry_route {
  ferry::Route route;
};

struct ferry_delivery {
  ferry::Delivery delivery;
};

struct ferry_pending_route {
  ferry::Pending<ferry::Route> pending;
};

struct ferry_pending_delivery {
  ferry::Pending<ferry::Delivery> pending;
};

struct ferry_pending_combine {
  ferry::Pending<void> pending;
};

struct ferry_env_table {
  std::vector<ferry::EnvLine> lines;
};
