#pragma once

#include "ops/facts/facts.hpp"

namespace ferry::ops {

// Takes out what names a machine, its owner or its network: host name, machine and boot ids, GUIDs,
// UUIDs, addresses, user names in paths. What checks judge stays: that a GID is link-local, names
// of devices, versions.
void redact(Facts& facts);

}  // namespace ferry::ops
