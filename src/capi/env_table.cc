#include "base/env.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/sized_struct.hpp"

using namespace ferry::capi;

ferry_status ferry_env_table_open(ferry_env_table** out_table) {
  return guard_new(__func__, {FERRY_REQUIRED(out_table)}, out_table, [] {
    return new ferry_env_table{ferry::explain_env(ferry::process_environment())};
  });
}

ferry_status ferry_env_table_num_lines(const ferry_env_table* table, size_t* out_num_lines) {
  return guard(__func__, {FERRY_REQUIRED(table), FERRY_REQUIRED(out_num_lines)},
               [&] { *out_num_lines = table->lines.size(); });
}

ferry_status ferry_env_table_line(const ferry_env_table* table,
                                  size_t index,
                                  ferry_env_line* out_line) {
  return guard(__func__, {FERRY_REQUIRED(table), FERRY_REQUIRED(out_line)}, [&] {
    FERRY_CHECK(index < table->lines.size(), ferry::ErrorCode::kInvalidArgument,
                "index is {}, expected less than {} lines", index, table->lines.size());
    const ferry::EnvLine& line = table->lines[index];
    ferry_env_line to{};
    to.name = line.name.c_str();
    to.value = line.value.c_str();
    to.source = line.source.c_str();
    to.fallback = line.fallback.c_str();
    to.help = line.help.c_str();
    write_sized("ferry_env_line", to, out_line);
  });
}

void ferry_env_table_free(ferry_env_table* table) { delete table; }
