#include <CLI/CLI.hpp>

#include "cli/command.hpp"
#include "ops/manifests/gcp_image.hpp"

namespace ferry::cli {

void add_image_command(CLI::App& app, Invocation& invocation) {
  CLI::App* image = app.add_subcommand("image", "Machine images of an installed host");
  image->require_subcommand(1);
  CLI::App* command =
      image->add_subcommand("gcp", "The sequence that images a GCP machine and its group");
  const auto options = std::make_shared<ops::GcpImageOptions>();
  command->add_option("--instance", options->instance, "The installed instance")->required();
  command->add_option("--zone", options->zone, "Its zone")->required();
  command->add_option("--disk", options->disk, "Its boot disk; default: named as the instance");
  command->add_option("--image", options->image, "Name of the image; default: INSTANCE-deepep");
  command->add_option("--family", options->family, "Its family")->capture_default_str();
  command->add_option("--storage-location", options->storage_location, "Where it is kept")
      ->capture_default_str();
  command->add_option("--group", options->group,
                      "Managed group of the instance, which then starts from it");
  command->add_option("--template", options->template_name,
                      "Name of the template; default: IMAGE-template");
  command->add_option("--machine-type", options->machine_type, "Of the template")
      ->capture_default_str();
  command->add_option("--network", options->network, "Of the first interface")
      ->capture_default_str();
  command->add_option("--rdma-network", options->rdma_network, "Of the RDMA interfaces")
      ->capture_default_str();
  command->add_option("--rdma-subnet", options->rdma_subnet, "Subnets SUBNET-0 to SUBNET-7")
      ->capture_default_str();
  command->add_option("--size", options->size, "Instances of the group afterwards")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option("--confirm", options->confirmed,
                      "Name of an instance or group that may be stopped or resized");
  command->add_flag("--apply", options->is_applied, "Run it; without it it is printed");
  command->add_flag("--json", options->is_json, "Print one JSON object, the steps inside");
  command->callback([&invocation, options] {
    invocation.action = [options] { return ops::run_gcp_image(*options); };
  });
}

}  // namespace ferry::cli
