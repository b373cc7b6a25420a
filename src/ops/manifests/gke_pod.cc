#include "ops/manifests/gke_pod.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "ops/finding.hpp"
#include "ops/install/process.hpp"

namespace ferry::ops {

namespace {

constexpr const char* kGib = "/host/home/kubernetes/bin/gib";

constexpr std::pair<const char*, const char*> kTuning[] = {
    {"NCCL_CROSS_NIC", "0"},
    {"NCCL_NET_GDR_LEVEL", "PIX"},
    {"NCCL_P2P_NET_CHUNKSIZE", "131072"},
    {"NCCL_NVLS_CHUNKSIZE", "524288"},
    {"NCCL_IB_ADAPTIVE_ROUTING", "1"},
    {"NCCL_IB_QPS_PER_CONNECTION", "4"},
    {"NCCL_IB_TC", "52"},
    {"NCCL_IB_FIFO_TC", "84"},
};

std::string interfaces_annotation(const GkePodOptions& options) {
  nlohmann::ordered_json list = {{{"interfaceName", "eth0"}, {"network", "default"}}};
  for (int i = 0; i < options.num_networks; ++i)
    list.push_back({{"interfaceName", fmt::format("eth{}", options.first_interface + i)},
                    {"network", fmt::format("rdma-{}", i)}});
  return list.dump();
}

void emit_metadata(YAML::Emitter& out, const GkePodOptions& options) {
  out << YAML::Key << "metadata" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "name" << YAML::Value << options.name;
  out << YAML::Key << "namespace" << YAML::Value << options.name_space;
  out << YAML::Key << "annotations" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "networking.gke.io/default-interface" << YAML::Value << YAML::SingleQuoted
      << "eth0";
  out << YAML::Key << "networking.gke.io/interfaces" << YAML::Value << YAML::SingleQuoted
      << interfaces_annotation(options);
  out << YAML::EndMap << YAML::EndMap;
}

void emit_variable(YAML::Emitter& out, const std::string& name, const std::string& value) {
  out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << name << YAML::Key << "value"
      << YAML::Value << YAML::DoubleQuoted << value << YAML::EndMap;
}

// gIB's variables: without them NCCL's initialisation fails on these nodes.
void emit_environment(YAML::Emitter& out) {
  out << YAML::Key << "env" << YAML::Value << YAML::BeginSeq;
  emit_variable(out, "LD_LIBRARY_PATH",
                fmt::format("/usr/local/nvidia/lib64:/usr/local/cuda/lib64:{}/lib64", kGib));
  emit_variable(out, "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE",
                fmt::format("{}/configs/guest_config.txtpb", kGib));
  emit_variable(out, "NCCL_TUNER_CONFIG_PATH",
                fmt::format("{}/configs/tuner_config_a4.txtpb", kGib));
  for (const auto& [name, value] : kTuning) emit_variable(out, name, value);
  out << YAML::EndSeq;
}

void emit_security(YAML::Emitter& out, const GkePodOptions& options) {
  out << YAML::Key << "securityContext" << YAML::Value << YAML::BeginMap;
  if (!options.is_least_privilege) {
    out << YAML::Key << "privileged" << YAML::Value << true
        << YAML::Comment("devices and DEVX rights for IBGDA; see --least-privilege");
  } else {
    out << YAML::Key << "capabilities" << YAML::Value << YAML::BeginMap << YAML::Key << "add"
        << YAML::Value << YAML::BeginSeq << "IPC_LOCK"
        << YAML::Comment("memory that NICs reach is locked") << YAML::EndSeq << YAML::EndMap;
  }
  out << YAML::EndMap;
}

void emit_mount(YAML::Emitter& out, const char* name, const std::string& path, bool is_read_only) {
  out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << name << YAML::Key << "mountPath"
      << YAML::Value << path;
  if (is_read_only) out << YAML::Key << "readOnly" << YAML::Value << true;
  out << YAML::EndMap;
}

void emit_container(YAML::Emitter& out, const GkePodOptions& options) {
  out << YAML::Key << "containers" << YAML::Value << YAML::BeginSeq << YAML::BeginMap;
  out << YAML::Key << "name" << YAML::Value << "deepep";
  out << YAML::Key << "image" << YAML::Value << options.image;
  out << YAML::Key << "command" << YAML::Value << YAML::Flow << YAML::BeginSeq << "sleep"
      << "infinity" << YAML::EndSeq;
  emit_environment(out);
  out << YAML::Key << "resources" << YAML::Value << YAML::BeginMap << YAML::Key << "limits"
      << YAML::Value << YAML::BeginMap << YAML::Key << "nvidia.com/gpu" << YAML::Value
      << options.num_gpus << YAML::EndMap << YAML::EndMap;
  emit_security(out, options);
  out << YAML::Key << "volumeMounts" << YAML::Value << YAML::BeginSeq;
  emit_mount(out, "shm", "/dev/shm", false);
  if (options.is_least_privilege)
    emit_mount(out, "gib", kGib, true);
  else
    emit_mount(out, "host", "/host", false);
  out << YAML::EndSeq << YAML::EndMap << YAML::EndSeq;
}

void emit_volumes(YAML::Emitter& out, const GkePodOptions& options) {
  out << YAML::Key << "volumes" << YAML::Value << YAML::BeginSeq;
  out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << "shm" << YAML::Key << "emptyDir"
      << YAML::Value << YAML::BeginMap << YAML::Key << "medium" << YAML::Value << "Memory"
      << YAML::Comment("the default of 64 MiB is too small for NCCL") << YAML::Key << "sizeLimit"
      << YAML::Value << options.shm << YAML::EndMap << YAML::EndMap;
  const bool is_least = options.is_least_privilege;
  out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << (is_least ? "gib" : "host")
      << YAML::Key << "hostPath" << YAML::Value << YAML::BeginMap << YAML::Key << "path"
      << YAML::Value << (is_least ? "/home/kubernetes/bin/gib" : "/")
      << YAML::Comment(
             is_least ? "NCCL's gIB plugin and its configuration, read-only"
                      : "the whole node, for gIB below /home/kubernetes; see --least-privilege");
  if (is_least) out << YAML::Key << "type" << YAML::Value << "Directory";
  out << YAML::EndMap << YAML::EndMap << YAML::EndSeq;
}

}  // namespace

std::string make_gke_pod(const GkePodOptions& options) {
  YAML::Emitter out;
  out << YAML::Comment("Written by ferry k8s gke. The nodes' image brings the NIC and GPU drivers.")
      << YAML::Newline << YAML::BeginMap;
  out << YAML::Key << "apiVersion" << YAML::Value << "v1";
  out << YAML::Key << "kind" << YAML::Value << "Pod";
  emit_metadata(out, options);
  out << YAML::Key << "spec" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "restartPolicy" << YAML::Value << "Never";
  if (!options.is_least_privilege) {
    out << YAML::Key << "hostNetwork" << YAML::Value << true
        << YAML::Comment("as in the guide; the annotations above make it unnecessary");
    out << YAML::Key << "hostPID" << YAML::Value << true
        << YAML::Comment("to see which processes of the node use the GPUs");
  }
  emit_container(out, options);
  emit_volumes(out, options);
  out << YAML::EndMap << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

int run_gke_pod(const GkePodOptions& options) {
  const std::string manifest = make_gke_pod(options);
  if (options.is_json) {
    nlohmann::ordered_json json = json_preamble("ferry.k8s/1", this_host());
    json["applies"] = options.is_applied;
    json["manifest"] = manifest;
    fmt::print("{}", print_json(json));
  }
  if (!options.is_applied) {
    if (!options.is_json) fmt::print("{}", manifest);
    return 0;
  }
  const ProcessResult result = run_process({.argv = {"kubectl", "apply", "-f", "-"},
                                            .input = manifest,
                                            .deadline = std::chrono::minutes(5)});
  fmt::print(stderr, "{}", escape_controls(result.output, true));
  if (!result.is_fine()) fmt::print(stderr, "kubectl apply: {}\n", result.words());
  return result.is_fine() ? 0 : 1;
}

}  // namespace ferry::ops
