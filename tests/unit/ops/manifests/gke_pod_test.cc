#include "ops/manifests/gke_pod.hpp"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

namespace ferry::ops {
namespace {

TEST(GkePod, IsTheGuidesPod) {
  const YAML::Node pod = YAML::Load(make_gke_pod({}));
  const YAML::Node container = pod["spec"]["containers"][0];
  // The annotation is JSON, which YAML reads.
  const YAML::Node interfaces =
      YAML::Load(pod["metadata"]["annotations"]["networking.gke.io/interfaces"].as<std::string>());

  EXPECT_TRUE(pod["spec"]["hostNetwork"].as<bool>());
  EXPECT_TRUE(pod["spec"]["hostPID"].as<bool>());
  EXPECT_TRUE(container["securityContext"]["privileged"].as<bool>());
  EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"].as<int>(), 8);
  EXPECT_EQ(container["volumeMounts"][1]["mountPath"].as<std::string>(), "/host");
  ASSERT_EQ(interfaces.size(), 9u);
  EXPECT_EQ(interfaces[8]["interfaceName"].as<std::string>(), "eth9");
  EXPECT_EQ(interfaces[8]["network"].as<std::string>(), "rdma-7");
}

TEST(GkePod, AsksForLittleWhenTold) {
  const YAML::Node pod = YAML::Load(make_gke_pod({.is_least_privilege = true}));
  const YAML::Node container = pod["spec"]["containers"][0];

  EXPECT_FALSE(pod["spec"]["hostNetwork"]);
  EXPECT_FALSE(pod["spec"]["hostPID"]);
  EXPECT_FALSE(container["securityContext"]["privileged"]);
  EXPECT_EQ(container["securityContext"]["capabilities"]["add"][0].as<std::string>(), "IPC_LOCK");
  EXPECT_TRUE(container["volumeMounts"][1]["readOnly"].as<bool>());
  EXPECT_EQ(pod["spec"]["volumes"][1]["hostPath"]["path"].as<std::string>(),
            "/home/kubernetes/bin/gib");
}

TEST(GkePod, StaysYamlWhateverItIsNamed) {
  const std::string name = "a: b # c\n- 'd\"";
  EXPECT_EQ(YAML::Load(make_gke_pod({.name = name}))["metadata"]["name"].as<std::string>(), name);
}

}  // namespace
}  // namespace ferry::ops
