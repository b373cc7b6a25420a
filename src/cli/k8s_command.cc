#include <CLI/CLI.hpp>

#include "cli/command.hpp"
#include "ops/manifests/gke_pod.hpp"

namespace ferry::cli {

void add_k8s_command(CLI::App& app, Invocation& invocation) {
  CLI::App* k8s = app.add_subcommand("k8s", "Manifests for Kubernetes");
  k8s->require_subcommand(1);
  CLI::App* command =
      k8s->add_subcommand("gke", "A Pod for DeepEP on GKE, eight GPUs and RDMA networks");
  const auto options = std::make_shared<ops::GkePodOptions>();
  command->add_option("--name", options->name, "Of the Pod")->capture_default_str();
  command->add_option("--namespace", options->name_space, "Its namespace")->capture_default_str();
  command->add_option("--image", options->image, "Its image")->capture_default_str();
  command->add_option("--gpus", options->num_gpus, "GPUs")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command->add_option("--networks", options->num_networks, "RDMA networks, rdma-0 and so on")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  command->add_option("--shm", options->shm, "Size of /dev/shm")->capture_default_str();
  command->add_flag(
      "--least-privilege", options->is_least_privilege,
      "No hostNetwork, hostPID or privileged; only gIB's folder, read-only, and IPC_LOCK");
  command->add_flag("--apply", options->is_applied, "Hand it to kubectl; without it it is printed");
  command->add_flag("--json", options->is_json, "Print one JSON object, the manifest inside");
  command->callback([&invocation, options] {
    invocation.action = [options] { return ops::run_gke_pod(*options); };
  });
}

}  // namespace ferry::cli
