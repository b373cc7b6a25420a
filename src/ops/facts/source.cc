#include "ops/facts/source.hpp"

#include <filesystem>

#include "ops/facts/facts_json.hpp"
#include "ops/facts/gather.hpp"

namespace ferry::ops {

namespace {

std::vector<std::string> expand_folders(const std::vector<std::string>& files) {
  std::vector<std::string> expanded;
  const Root here;
  for (const std::string& file : files) {
    const std::string absolute = std::filesystem::absolute(file).string();
    if (!here.is_folder(absolute)) {
      expanded.push_back(absolute);
      continue;
    }
    const std::size_t num_before = expanded.size();
    for (const std::string& name : here.names(absolute))
      if (name.ends_with(".json")) expanded.push_back(absolute + "/" + name);
    FERRY_CHECK(
        expanded.size() > num_before, ErrorCode::kInvalidArgument,
        "the folder '{}' holds no .json file; try: ferry facts --output {}/$(hostname).json", file,
        file);
  }
  return expanded;
}

Facts read_file(const std::string& file) {
  const Fact<std::string> text = Root().read(file);
  FERRY_CHECK(text.is_known(), ErrorCode::kInvalidArgument, "cannot read the facts in '{}': {}",
              file, text.is_absent() ? "no such file" : text.reason());
  return parse_facts(text.value(), file);
}

}  // namespace

std::vector<Facts> load_all_facts(const FactsSource& source) {
  std::vector<Facts> all;
  if (source.files.empty()) {
    all.push_back(gather_facts(Root(source.root)));
    return all;
  }
  FERRY_CHECK(source.root == "/", ErrorCode::kInvalidArgument,
              "--root and --facts exclude each other: a file holds what was read below a root");
  for (const std::string& file : expand_folders(source.files)) all.push_back(read_file(file));
  return all;
}

Facts load_facts(const FactsSource& source) {
  const std::vector<Facts> all = load_all_facts(source);
  FERRY_CHECK(all.size() == 1, ErrorCode::kInvalidArgument,
              "{} files of facts were given, expected one; several are compared by: ferry doctor",
              all.size());
  return all.front();
}

}  // namespace ferry::ops
