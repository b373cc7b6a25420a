#include "ops/manifests/gcp_image.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ops/finding.hpp"
#include "ops/install/process.hpp"
#include "ops/install/recipes.hpp"

namespace ferry::ops {

namespace {

constexpr int kRdmaInterfaces = 8;

std::string image_name(const GcpImageOptions& options) {
  return options.image.empty() ? options.instance + "-deepep" : options.image;
}

std::string template_name(const GcpImageOptions& options) {
  return options.template_name.empty() ? image_name(options) + "-template" : options.template_name;
}

Step gcloud(std::string title, std::vector<std::string> words) {
  words.insert(words.begin(), {"gcloud", "compute"});
  Step step = user_step(std::move(title), std::move(words));
  step.deadline = std::chrono::minutes(60);
  return step;
}

Step create_template(const GcpImageOptions& options) {
  Step step = gcloud("make a template with eight RDMA interfaces, none with an external address",
                     {"instance-templates", "create", template_name(options),
                      "--machine-type=" + options.machine_type, "--image=" + image_name(options),
                      "--network-interface=nic-type=GVNIC,network=" + options.network});
  for (int i = 0; i < kRdmaInterfaces; ++i)
    step.argv.push_back(
        fmt::format("--network-interface=nic-type=MRDMA,network={},subnet={}-{},no-address",
                    options.rdma_network, options.rdma_subnet, i));
  return step;
}

std::vector<std::string> unconfirmed(const GcpImageOptions& options) {
  std::vector<std::string> names;
  for (const std::string& name : {options.instance, options.group})
    if (!name.empty() && std::find(options.confirmed.begin(), options.confirmed.end(), name) ==
                             options.confirmed.end())
      names.push_back(name);
  return names;
}

int apply(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    fmt::print(stderr, "{}\n  {}\n", step.title, shell_line(step, {}));
    const ProcessResult result = run_process({.argv = step.argv, .deadline = step.deadline});
    if (result.is_fine()) continue;
    fmt::print(stderr, "{}failed: {}; what came before is done, what follows is not\n",
               escape_controls(result.output, true), result.words());
    return 1;
  }
  return 0;
}

}  // namespace

std::vector<Step> plan_gcp_image(const GcpImageOptions& options) {
  const std::string zone = "--zone=" + options.zone;
  std::vector<Step> steps;
  if (!options.group.empty())
    steps.push_back(gcloud("take the instance out of its group, which would replace it",
                           {"instance-groups", "managed", "abandon-instances", options.group,
                            "--instances=" + options.instance, zone}));
  steps.push_back(gcloud("stop it", {"instances", "stop", options.instance, zone}));
  steps.push_back(
      gcloud("make an image of its boot disk",
             {"images", "create", image_name(options),
              "--source-disk=" + (options.disk.empty() ? options.instance : options.disk),
              "--source-disk-zone=" + options.zone, "--family=" + options.family,
              "--storage-location=" + options.storage_location}));
  steps.push_back(create_template(options));
  if (options.group.empty()) return steps;
  steps.push_back(
      gcloud("set it on the group", {"instance-groups", "managed", "set-instance-template",
                                     options.group, "--template=" + template_name(options), zone}));
  steps.push_back(gcloud("resize the group", {"instance-groups", "managed", "resize", options.group,
                                              "--size=" + std::to_string(options.size), zone}));
  return steps;
}

int run_gcp_image(const GcpImageOptions& options) {
  const std::vector<Step> steps = plan_gcp_image(options);
  if (options.is_json) {
    nlohmann::ordered_json json = json_preamble("ferry.image/1", this_host());
    json["applies"] = options.is_applied;
    json["steps"] = nlohmann::ordered_json::array();
    for (const Step& step : steps)
      json["steps"].push_back({{"title", step.title}, {"argv", step.argv}});
    fmt::print("{}", print_json(json));
  }
  if (!options.is_applied) {
    if (options.is_json) return 0;
    for (const Step& step : steps) fmt::print("# {}\n{}\n", step.title, shell_line(step, {}));
    return 0;
  }
  const std::vector<std::string> names = unconfirmed(options);
  if (names.empty()) return apply(steps);
  for (const std::string& name : names)
    fmt::print(stderr, "stopped: this stops or resizes '{}'; to go on: --confirm {}\n", name,
               shell_quote(name));
  return 4;
}

}  // namespace ferry::ops
