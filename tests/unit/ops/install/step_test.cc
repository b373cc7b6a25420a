#include "ops/install/step.hpp"

#include <gtest/gtest.h>

#include "ops/install/host_view.hpp"

namespace ferry::ops {
namespace {

TEST(Step, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(shell_quote("/opt/deepep/a-b_1.so"), "/opt/deepep/a-b_1.so");
  EXPECT_EQ(shell_quote("it's $(rm)"), "'it'\\''s $(rm)'");
  EXPECT_EQ(shell_quote(""), "''");
}

TEST(Step, RunsAsWhoItSays) {
  Step step;
  step.argv = {"make"};
  step.environment = {{"A", "b c"}};
  step.folder = "/src";
  EXPECT_EQ(shell_line(step, {}), "env -C /src 'A=b c' make");
  EXPECT_EQ(shell_line(step, {.is_root = true, .sudo_user = "alice"}),
            "sudo -u alice -H -- env -C /src 'A=b c' make");
  step.is_root = true;
  EXPECT_EQ(shell_line(step, {}), "sudo env -C /src 'A=b c' make");
  EXPECT_EQ(shell_line(step, {.is_root = true, .sudo_user = ""}), "env -C /src 'A=b c' make");
}

TEST(HostView, ReadsBothSpellingsOfTheRegistryOption) {
  EXPECT_TRUE(HostView::sets_peer_mapping("PeerMappingOverride=1;"));
  EXPECT_TRUE(HostView::sets_peer_mapping("RmMsg=1;PeerMappingOverride=0x1"));
  EXPECT_FALSE(HostView::sets_peer_mapping("PeerMappingOverride=0"));
  EXPECT_FALSE(HostView::sets_peer_mapping("PeerMappingOverride=10"));
  EXPECT_FALSE(HostView::sets_peer_mapping(""));
}

}  // namespace
}  // namespace ferry::ops
