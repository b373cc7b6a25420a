#include <gtest/gtest.h>

#include <string>

#include "ferry/ferry.h"

namespace ferry::capi {
namespace {

TEST(EnvTable, HoldsALineForEachVariable) {
  ferry_env_table* table = nullptr;
  ASSERT_EQ(ferry_env_table_open(&table), FERRY_OK) << ferry_last_error();
  size_t num_lines = 0;
  ASSERT_EQ(ferry_env_table_num_lines(table, &num_lines), FERRY_OK);
  bool has_timeout = false;

  for (size_t index = 0; index < num_lines; ++index) {
    ferry_env_line line;
    ferry_env_line_init(&line);
    ASSERT_EQ(ferry_env_table_line(table, index, &line), FERRY_OK) << ferry_last_error();
    EXPECT_EQ(std::string(line.name).substr(0, 6), "FERRY_");
    EXPECT_STRNE(line.help, "");
    has_timeout |= line.name == std::string("FERRY_TIMEOUT_MS");
  }

  EXPECT_TRUE(has_timeout);
  ferry_env_table_free(table);
}

TEST(EnvTable, RefusesALineBeyondItsEnd) {
  ferry_env_table* table = nullptr;
  ASSERT_EQ(ferry_env_table_open(&table), FERRY_OK) << ferry_last_error();
  size_t num_lines = 0;
  ASSERT_EQ(ferry_env_table_num_lines(table, &num_lines), FERRY_OK);
  ferry_env_line line;
  ferry_env_line_init(&line);

  EXPECT_EQ(ferry_env_table_line(table, num_lines, &line), FERRY_INVALID_ARGUMENT);

  EXPECT_EQ(ferry_last_error(), "index is " + std::to_string(num_lines) + ", expected less than " +
                                    std::to_string(num_lines) + " lines");
  EXPECT_EQ(line.name, nullptr);
  ferry_env_table_free(table);
}

}  // namespace
}  // namespace ferry::capi
