#include "ops/facts/facts_json.hpp"

#include <nlohmann/json.hpp>
#include <type_traits>

#include "ops/finding.hpp"

namespace ferry::ops {

namespace {

using Json = nlohmann::ordered_json;

struct NoField {
  void operator()(const char*, auto&) const {}
};

template <typename T>
concept Listed = requires(T& value) {
  T::fields(value, NoField{});
};

// ---- out -----------------------------------------------------------------------------------

template <typename T>
Json write(const T& value);
template <typename T>
Json write(const std::vector<T>& values);

template <typename T>
Json write(const Fact<T>& fact) {
  if (fact.is_known()) return write(fact.value());
  if (fact.is_absent()) return nullptr;
  return {{"unknown", fact.reason()}};
}

template <typename T>
Json write(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(write(value));
  return list;
}

template <typename T>
Json write(const T& value) {
  if constexpr (Listed<const T>) {
    Json object = Json::object();
    T::fields(value, [&](const char* name, const auto& field) { object[name] = write(field); });
    return object;
  } else {
    return value;
  }
}

// ---- in ------------------------------------------------------------------------------------

// Where in the text a value stands, for the message: "hcas[2].ports[0].state".
struct Place {
  std::string_view source;
  std::string path;

  [[nodiscard]] Place at(const std::string& name) const {
    return {source, path.empty() ? name : path + "." + name};
  }
  [[nodiscard]] Place at(std::size_t index) const {
    return {source, path + "[" + std::to_string(index) + "]"};
  }
};

void check_type(bool is_right, const Json& json, const Place& place, const char* expected) {
  FERRY_CHECK(is_right, ErrorCode::kInvalidArgument, "{}: '{}' is of type {}, expected {}",
              place.source, place.path, json.type_name(), expected);
}

void read(const Json& json, std::string& value, const Place& place) {
  check_type(json.is_string(), json, place, "string");
  value = json.get<std::string>();
}

void read(const Json& json, bool& value, const Place& place) {
  check_type(json.is_boolean(), json, place, "boolean");
  value = json.get<bool>();
}

void read(const Json& json, std::int64_t& value, const Place& place) {
  check_type(json.is_number_integer(), json, place, "integer");
  FERRY_CHECK(!json.is_number_unsigned() || json.get<std::uint64_t>() <= INT64_MAX,
              ErrorCode::kInvalidArgument, "{}: '{}' does not fit into 64 bits", place.source,
              place.path);
  value = json.get<std::int64_t>();
}

void read(const Json& json, int& value, const Place& place) {
  std::int64_t wide = 0;
  read(json, wide, place);
  FERRY_CHECK(wide >= INT32_MIN && wide <= INT32_MAX, ErrorCode::kInvalidArgument,
              "{}: '{}' is {}, which does not fit into 32 bits", place.source, place.path, wide);
  value = static_cast<int>(wide);
}

void read(const Json& json, double& value, const Place& place) {
  check_type(json.is_number(), json, place, "number");
  value = json.get<double>();
}

template <typename T>
void read(const Json& json, std::map<std::string, T>& values, const Place& place) {
  check_type(json.is_object(), json, place, "object");
  for (const auto& [name, value] : json.items()) read(value, values[name], place.at(name));
}

template <typename T>
void read(const Json& json, Fact<T>& fact, const Place& place);

template <typename T>
void read(const Json& json, std::vector<T>& values, const Place& place);

template <Listed T>
void read(const Json& json, T& value, const Place& place) {
  check_type(json.is_object(), json, place, "object");
  T::fields(value, [&](const char* name, auto& field) {
    const auto found = json.find(name);
    if (found != json.end()) read(*found, field, place.at(name));
  });
}

template <typename T>
void read(const Json& json, std::vector<T>& values, const Place& place) {
  check_type(json.is_array(), json, place, "array");
  values.assign(json.size(), T{});
  for (std::size_t i = 0; i < json.size(); ++i) read(json[i], values[i], place.at(i));
}

template <typename T>
void read(const Json& json, Fact<T>& fact, const Place& place) {
  if (json.is_null()) {
    fact = Fact<T>::absent();
  } else if (json.is_object() && json.size() == 1 && json.contains("unknown")) {
    std::string reason;
    read(json["unknown"], reason, place.at("unknown"));
    fact = Fact<T>::unknown(reason);
  } else {
    T value{};
    read(json, value, place);
    fact = std::move(value);
  }
}

Json parse_text(std::string_view text, std::string_view source) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    FERRY_THROW(ErrorCode::kInvalidArgument, "{} is not JSON: {}", source, error.what());
  }
}

}  // namespace

Json facts_json(const Facts& facts) {
  Json json = json_preamble(kFactsSchema, facts.host.name);
  json["facts"] = write(facts);
  return json;
}

Facts parse_facts(std::string_view text, std::string_view source) {
  const Json json = parse_text(text, source);
  FERRY_CHECK(json.is_object() && json.contains("schema") && json["schema"] == kFactsSchema &&
                  json.contains("facts"),
              ErrorCode::kInvalidArgument,
              "{} holds no facts, expected an object with \"schema\": \"{}\"; try: ferry facts",
              source, kFactsSchema);
  Facts facts;
  read(json["facts"], facts, {source, ""});
  return facts;
}

std::vector<GpuFacts> parse_gpu_facts(std::string_view text, std::string_view source) {
  std::vector<GpuFacts> gpus;
  read(parse_text(text, source), gpus, {source, "gpus"});
  return gpus;
}

}  // namespace ferry::ops
