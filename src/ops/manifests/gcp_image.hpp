#pragma once

#include <string>
#include <vector>

#include "ops/install/step.hpp"

namespace ferry::ops {

// An image of an installed GCP machine, and a group that starts from it.
struct GcpImageOptions {
  std::string instance;
  std::string zone;
  std::string disk;   // its boot disk; empty: named as the instance
  std::string image;  // empty: INSTANCE-deepep
  std::string family = "deepep-b200";
  std::string storage_location = "us";
  std::string group;          // the managed group; empty: none, and nothing is abandoned or resized
  std::string template_name;  // empty: IMAGE-template
  std::string machine_type = "a4-highgpu-8g";
  std::string network = "default";  // of the first interface
  std::string rdma_network = "rdma-network";
  std::string rdma_subnet = "rdma-subnet";  // SUBNET-0 to SUBNET-7
  int size = 1;                             // of the group afterwards
  std::vector<std::string> confirmed;       // names that may be stopped or resized
  bool is_applied = false;
  bool is_json = false;
};

// The sequence, in order. Pure.
[[nodiscard]] std::vector<Step> plan_gcp_image(const GcpImageOptions& options);

// Prints it, or runs it. 4 if the instance or group that it would stop or resize is not confirmed.
int run_gcp_image(const GcpImageOptions& options);

}  // namespace ferry::ops
