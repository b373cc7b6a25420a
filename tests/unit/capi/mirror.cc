#include "unit/capi/mirror.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>

namespace ferry::mirror {

namespace {

// C++ name -> C name where the rule gives another; "" where C needs none.
const std::map<std::string, std::string>& exceptions() {
  static const std::map<std::string, std::string> kExceptions = {
      // Internal: what a handle points at.
      {"ferry_group_impl()", ""},
      {"ferry_route_impl()", ""},
      {"ferry_delivery_impl()", ""},
      // A handle that exists is valid; NULL is the invalid one.
      {"ferry_route_is_valid()", ""},
      {"ferry_delivery_is_valid()", ""},
      // num_dims > 0.
      {"ferry_tensor_is_given()", ""},
      // ferry_exchange_config is the struct.
      {"ferry_exchange_config()", "ferry_exchange_get_config()"},
      // One type of pending operation per result.
      {"ferry_pending_finish()", "ferry_pending_combine_finish()"},
      {"ferry_error_code_name()", "ferry_status_name()"},
      // The code is the returned status.
      {"ferry_error_code()", ""},
      // Device and StreamRef are plain members and arguments.
      {"ferry_device_cpu()", "FERRY_DEVICE_KIND_CPU"},
      {"ferry_device_cuda()", "FERRY_DEVICE_KIND_CUDA"},
      {"ferry_device.kind", "ferry_tensor.device_kind"},
      {"ferry_device.index", "ferry_tensor.device_index"},
      {"ferry_tensor.device", "ferry_tensor.device_index"},
      {"ferry_exchange_config.device", "ferry_exchange_config.device_index"},
      {"ferry_stream_ref.handle", ""},
      // An argument of the functions that give counters.
      {"ferry_counters.wait_ns_by_peer", ""},
  };
  return kExceptions;
}

// CamelCase and kCamelCase to snake_case.
std::string snake_case(std::string name) {
  if (name.size() > 1 && name[0] == 'k' && std::isupper(static_cast<unsigned char>(name[1])))
    name.erase(0, 1);
  std::string snake;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isupper(letter) && !snake.empty()) snake += '_';
    snake += static_cast<char>(std::tolower(letter));
  }
  return snake;
}

std::string c_type(const std::string& cpp_type) {
  if (cpp_type == "TensorView") return "ferry_tensor";
  if (cpp_type == "DType") return "ferry_dtype";
  return "ferry_" + snake_case(cpp_type);
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string without_comments(const std::string& text) {
  return std::regex_replace(text, std::regex("//[^\n]*|#[^\n]*"), "");
}

// Position behind the bracket that closes the one at `open`.
std::size_t behind_bracket(const std::string& text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == '{' || text[at] == '(') ++depth;
    if ((text[at] == '}' || text[at] == ')') && --depth == 0) return at + 1;
  }
  return text.size();
}

// The declarations at the outermost level: bodies, initialisers and parameters are emptied.
std::vector<std::string> declarations(const std::string& body) {
  std::vector<std::string> all(1);
  for (std::size_t at = 0; at < body.size();) {
    const char c = body[at];
    if (c == '(' || c == '{') {
      all.back() += c;
      at = behind_bracket(body, at);
      // A function's body ends its declaration without a semicolon.
      const bool has_parameters = all.back().find('(') != std::string::npos;
      if (c == '{' && has_parameters) all.emplace_back();
      continue;
    }
    if (c == ';')
      all.emplace_back();
    else
      all.back() += c;
    ++at;
  }
  return all;
}

void add_members(const std::string& type, const std::string& body, std::vector<std::string>& to) {
  static const std::regex kFunction(R"(\b([a-z]\w*)\()");
  static const std::regex kField(R"(\b(\w+)\s*(=[^=]*|\{|\[\w*\]\s*(=.*)?\{?)?\s*$)");
  static const std::regex kMemberInitialisers(R"(\s:\s[^]*)");
  for (const std::string& whole : declarations(body)) {
    const std::string declaration = std::regex_replace(whole, kMemberInitialisers, "");
    std::smatch match;
    if (std::regex_search(declaration, std::regex("\\b(friend|operator)\\b"))) continue;
    if (declaration.find('(') < declaration.find('=')) {
      if (std::regex_search(declaration, match, kFunction) && match[1].str().back() != '_')
        to.push_back(c_type(type) + "_" + match[1].str() + "()");
    } else if (declaration.find("static") == std::string::npos &&
               std::regex_search(declaration, match, kField)) {
      const bool is_time = declaration.find("milliseconds") != std::string::npos;
      to.push_back(c_type(type) + "." + match[1].str() + (is_time ? "_ms" : ""));
    }
  }
}

void add_types(std::string& text, std::vector<std::string>& to) {
  static const std::regex kType(R"((class|struct) (?:FERRY_API )?(\w+)[^;{(]*\{)");
  std::smatch match;
  while (std::regex_search(text, match, kType)) {
    const auto begin = static_cast<std::size_t>(match.position(0));
    const std::size_t open = begin + static_cast<std::size_t>(match.length(0)) - 1;
    const std::size_t end = behind_bracket(text, open);
    std::string body = text.substr(open + 1, end - open - 2);
    body = body.substr(0, body.find("private:"));
    body = std::regex_replace(body, std::regex("public:"), "");
    add_members(match[2], body, to);
    text.erase(begin, end - begin);
  }
}

void add_enums(std::string& text, std::vector<std::string>& to) {
  static const std::regex kEnum(R"(enum class (\w+) : int \{([^}]*)\})");
  static const std::regex kEnumerator(R"(\b(k\w+) =)");
  std::smatch match;
  while (std::regex_search(text, match, kEnum)) {
    const std::string name = match[1];
    const std::string body = match[2];
    const std::string prefix = name == "ErrorCode" ? "FERRY" : upper(c_type(name));
    for (std::sregex_iterator it(body.begin(), body.end(), kEnumerator), end; it != end; ++it)
      to.push_back(prefix + "_" + upper(snake_case((*it)[1])));
    text.erase(static_cast<std::size_t>(match.position(0)),
               static_cast<std::size_t>(match.length(0)));
  }
}

// Run last: what is left are the functions outside of any type.
void add_free_functions(const std::string& text, std::vector<std::string>& to) {
  static const std::regex kFunction(R"(FERRY_API [\w:\s*]*?\b([a-z]\w*)\()");
  for (std::sregex_iterator it(text.begin(), text.end(), kFunction), end; it != end; ++it)
    to.push_back("ferry_" + (*it)[1].str() + "()");
}

bool has_name(const std::string& name, const std::string& c_header) {
  if (name.ends_with("()"))
    return std::regex_search(c_header, std::regex("\\b" + name.substr(0, name.size() - 2) + "\\("));
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return std::regex_search(c_header, std::regex(name + " = "));
  const std::size_t open = c_header.find("typedef struct " + name.substr(0, dot) + " {");
  if (open == std::string::npos) return false;
  const std::string body = c_header.substr(open, c_header.find('}', open) - open);
  return std::regex_search(body, std::regex("\\b" + name.substr(dot + 1) + "(\\[\\w+\\])?;"));
}

}  // namespace

std::vector<std::string> expected_names(const std::string& cpp_headers) {
  std::string text = without_comments(cpp_headers);
  std::vector<std::string> names;
  add_enums(text, names);
  add_types(text, names);
  add_free_functions(text, names);
  for (std::string& name : names)
    if (const auto it = exceptions().find(name); it != exceptions().end()) name = it->second;
  std::erase(names, "");
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::string> missing_names(const std::vector<std::string>& names,
                                       const std::string& c_header) {
  const std::string text = without_comments(c_header);
  std::vector<std::string> missing;
  std::copy_if(names.begin(), names.end(), std::back_inserter(missing),
               [&](const std::string& name) { return !has_name(name, text); });
  return missing;
}

}  // namespace ferry::mirror
