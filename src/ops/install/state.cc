#include "ops/install/state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"

namespace ferry::ops {

namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// nullopt-like: an empty state with a note for anything that is not ours.
InstallState parse_state(const std::string& text,
                         const std::string& machine_id,
                         std::string& note) {
  const Json json = Json::parse(text, nullptr, false);
  InstallState state;
  try {
    if (json.at("plan_version").get<int>() != kPlanVersion) {
      note = "the recorded state is of another version of the plan, and is ignored";
      return {};
    }
    state.machine_id = json.at("machine_id").get<std::string>();
    for (const auto& [id, record] : json.at("phases").items())
      state.phases[id] = {record.at("status").get<std::string>(),
                          record.at("boot_id").get<std::string>(),
                          record.at("time").get<std::string>()};
    state.fetched = json.at("fetched").get<std::map<std::string, std::string>>();
  } catch (const Json::exception&) {
    note = "the recorded state is damaged, and is ignored";
    return {};
  }
  if (state.machine_id != machine_id) {
    note = "the recorded state is of another machine, and is ignored";
    return {};
  }
  return state;
}

UniqueFd take_lock(const std::string& path) {
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  FERRY_CHECK(lock.is_open(), ErrorCode::kSystem, "cannot open the lock '{}': {}", path,
              errno_text(errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    const std::string holder = read_file(path);
    FERRY_THROW(ErrorCode::kNoResource,
                "another ferry install is running here, pid {}; try: wait for it",
                holder.empty() ? "unknown" : holder);
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    FERRY_THROW(ErrorCode::kSystem, "cannot write the lock '{}': {}", path, errno_text(errno));
  return lock;
}

}  // namespace

StateFolder::StateFolder(std::string folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  FERRY_CHECK(!error, ErrorCode::kSystem, "cannot make the folder '{}': {}", folder_,
              error.message());
  lock_ = take_lock(folder_ + "/lock");
}

InstallState StateFolder::load(const std::string& machine_id, std::string& note) const {
  return read_state(folder_, machine_id, note);
}

void StateFolder::save(const InstallState& state) const {
  Json json = {{"schema", "ferry.install-state/1"},
               {"plan_version", kPlanVersion},
               {"machine_id", state.machine_id},
               {"phases", Json::object()},
               {"fetched", state.fetched}};
  for (const auto& [id, record] : state.phases)
    json["phases"][id] = {
        {"status", record.status}, {"boot_id", record.boot_id}, {"time", record.time}};
  const std::string path = folder_ + "/state.json";
  {
    std::ofstream file(path + ".new", std::ios::binary);
    file << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
    file.flush();
    FERRY_CHECK(file.good(), ErrorCode::kSystem, "cannot write '{}.new'", path);
  }
  std::filesystem::rename(path + ".new", path);
}

InstallState read_state(const std::string& folder,
                        const std::string& machine_id,
                        std::string& note) {
  const std::string path = folder + "/state.json";
  InstallState state;
  if (std::filesystem::exists(path)) state = parse_state(read_file(path), machine_id, note);
  state.machine_id = machine_id;
  return state;
}

}  // namespace ferry::ops
