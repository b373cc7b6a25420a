#pragma once

#include <string>

namespace ferry::ops {

// A Pod for DeepEP on a GKE node with eight GPUs and as many RDMA networks (A4).
struct GkePodOptions {
  std::string name = "deepep";
  std::string name_space = "default";
  std::string image = "nvcr.io/nvidia/pytorch:25.06-py3";
  int num_gpus = 8;
  int num_networks = 8;     // rdma-0, rdma-1, ...
  int first_interface = 2;  // eth2 is the first RDMA interface
  std::string shm = "64Gi";
  bool is_least_privilege = false;  // no hostNetwork, hostPID or privileged
  bool is_applied = false;          // hand it to kubectl
  bool is_json = false;
};

// The manifest, valid YAML, with a comment for each privilege.
[[nodiscard]] std::string make_gke_pod(const GkePodOptions& options);

// Prints it, or hands it to kubectl. 0, or 1 if kubectl failed.
int run_gke_pod(const GkePodOptions& options);

}  // namespace ferry::ops
