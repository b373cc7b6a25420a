#include "bench/npy.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/human.hpp"
#include "base/unique_fd.hpp"

namespace ferry::bench {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = 65536;
constexpr std::int64_t kMaxTopk = 32;
constexpr std::int64_t kMaxExperts = 4096;

#define NPY_CHECK(condition, ...)                                                  \
  FERRY_CHECK((condition), ErrorCode::kInvalidArgument, "recording '{}' {}", name, \
              fmt::format(__VA_ARGS__))

// What a header says. Keys may come in any order, each once.
struct Header {
  std::optional<std::string> descr;
  std::optional<bool> is_fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

// Text of a stranger, fit for a message: short, printable.
std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string shown;
  for (const char c : text.substr(0, kMost))
    shown += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  return text.size() > kMost ? shown + "..." : shown;
}

// Reads the header's Python dictionary: the small part of the language that NumPy writes.
class HeaderParser {
 public:
  HeaderParser(const std::string& file_name, std::string_view text)
      : name(file_name), text_(text) {}

  Header parse() {
    Header header;
    expect('{');
    while (!take('}')) {
      parse_item(header);
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    NPY_CHECK(at_ == text_.size(), "has a header with '{}' after its dictionary",
              printable(text_.substr(at_)));
    return header;
  }

 private:
  void parse_item(Header& header) {
    const std::string key = parse_text();
    expect(':');
    const bool is_again = (key == "descr" && header.descr) ||
                          (key == "fortran_order" && header.is_fortran_order) ||
                          (key == "shape" && header.shape);
    NPY_CHECK(!is_again, "has a header with '{}' twice", key);
    if (key == "descr") {
      skip_space();
      NPY_CHECK(at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"'),
                "holds records or objects, expected plain integers");
      header.descr = parse_text();
    } else if (key == "fortran_order") {
      header.is_fortran_order = parse_truth();
    } else if (key == "shape") {
      header.shape = parse_shape();
    } else {
      NPY_CHECK(false, "has a header with the unknown key '{}'", printable(key));
    }
  }

  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \n\t\r", text_[at_]) != nullptr && text_[at_] != 0)
      ++at_;
  }

  bool take(char wanted) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    NPY_CHECK(take(wanted), "has a header with '{}' where '{}' is expected",
              printable(text_.substr(at_)), wanted);
  }

  std::string parse_text() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    NPY_CHECK(quote == '\'' || quote == '"',
              "has a header with '{}' where a quoted word is expected",
              printable(text_.substr(at_)));
    const std::size_t end = text_.find(quote, at_ + 1);
    NPY_CHECK(end != std::string_view::npos, "has a header with an open quote");
    const std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }

  bool parse_truth() {
    skip_space();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    NPY_CHECK(false, "has a header with '{}' where True or False is expected",
              printable(text_.substr(at_)));
    return false;
  }

  std::vector<std::int64_t> parse_shape() {
    constexpr std::size_t kMostDims = 32;  // NumPy's own limit
    std::vector<std::int64_t> shape;
    expect('(');
    while (!take(')')) {
      NPY_CHECK(shape.size() < kMostDims, "has more than {} dimensions", kMostDims);
      shape.push_back(parse_extent());
      if (take(',')) continue;
      expect(')');
      break;
    }
    return shape;
  }

  std::int64_t parse_extent() {
    skip_space();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      NPY_CHECK(!__builtin_mul_overflow(value, std::int64_t{10}, &value) &&
                    !__builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value),
                "has an extent beyond 64 bits in its shape");
      ++at_;
    }
    NPY_CHECK(at_ > begin, "has a header with '{}' where a whole number is expected",
              printable(text_.substr(begin)));
    return value;
  }

  const std::string& name;  // of the file; the name that NPY_CHECK uses
  std::string_view text_;
  std::size_t at_ = 0;
};

// The header's text and where the elements begin.
struct Parts {
  std::string_view header;
  std::size_t elements_begin = 0;
};

Parts split(const std::string& name, std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  NPY_CHECK(text.substr(0, kMagic.size()) == kMagic,
            "is not a .npy file: it does not begin with \\x93NUMPY");
  NPY_CHECK(text.size() >= 10, "is truncated: {} bytes hold no header", text.size());
  const int major = static_cast<unsigned char>(text[6]);
  NPY_CHECK(major >= 1 && major <= 3, "is of .npy format {}, expected 1, 2 or 3", major);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t header_begin = 8 + length_bytes;
  NPY_CHECK(text.size() >= header_begin, "is truncated: {} bytes hold no header", text.size());
  std::size_t header_bytes = 0;
  for (std::size_t i = 0; i < length_bytes; ++i)
    header_bytes |= static_cast<std::size_t>(static_cast<unsigned char>(text[8 + i])) << (8 * i);
  NPY_CHECK(header_bytes <= kMaxHeaderBytes, "claims a header of {} bytes, expected at most {}",
            header_bytes, kMaxHeaderBytes);
  NPY_CHECK(header_bytes <= text.size() - header_begin,
            "is truncated: its header has {} bytes, {} are there", header_bytes,
            text.size() - header_begin);
  return {text.substr(header_begin, header_bytes), header_begin + header_bytes};
}

struct ElementType {
  std::size_t num_bytes = 0;
  bool is_signed = true;
};

ElementType element_type(const std::string& name, const std::string& descr) {
  if (descr == "<i2") return {2, true};
  if (descr == "<i4") return {4, true};
  if (descr == "<i8") return {8, true};
  if (descr == "|u1" || descr == "<u1") return {1, false};
  if (descr == "<u2") return {2, false};
  if (descr == "<u4") return {4, false};
  NPY_CHECK(false,
            "has elements of type '{}', expected little-endian integers (<i2, <i4, <i8, |u1, <u2 "
            "or <u4)",
            printable(descr));
  return {};
}

std::int64_t load(const std::byte* from, ElementType type) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < type.num_bytes; ++i)
    value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
  const int unused_bits = static_cast<int>(64 - 8 * type.num_bytes);
  const auto as_signed = static_cast<std::int64_t>(value << unused_bits);
  return type.is_signed ? as_signed >> unused_bits : static_cast<std::int64_t>(value);
}

// Sizes from the header, held against the bytes that are really there.
Recording shape_recording(const std::string& name, const Header& header, std::size_t data_bytes) {
  const std::vector<std::int64_t>& shape = *header.shape;
  NPY_CHECK(shape.size() == 2 || shape.size() == 3,
            "has {} dimensions, expected [tokens, topk] or [tokens, layers, topk]", shape.size());
  const std::int64_t top_k = shape.back();
  NPY_CHECK(top_k >= 1 && top_k <= kMaxTopk, "has {} columns of top-k ids, expected 1 to {}", top_k,
            kMaxTopk);
  const std::int64_t num_layers = shape.size() == 3 ? shape[1] : 1;
  NPY_CHECK(num_layers >= 1, "has no layers");
  std::int64_t need = static_cast<std::int64_t>(element_type(name, *header.descr).num_bytes);
  for (const std::int64_t extent : shape)
    NPY_CHECK(!__builtin_mul_overflow(need, extent, &need), "has a shape beyond 64 bits of bytes");
  NPY_CHECK(static_cast<std::uint64_t>(need) == data_bytes,
            "{}: its shape needs {} bytes of ids, {} are there",
            static_cast<std::uint64_t>(need) > data_bytes ? "is truncated" : "has bytes left over",
            need, data_bytes);
  Recording recording;
  recording.num_tokens = shape[0];
  recording.num_layers = num_layers;
  recording.top_k = static_cast<int>(top_k);
  return recording;
}

}  // namespace

Recording parse_npy(const std::string& name, std::span<const std::byte> bytes) {
  const Parts parts = split(name, bytes);
  const Header header = HeaderParser(name, parts.header).parse();
  NPY_CHECK(header.descr, "has a header without 'descr'");
  NPY_CHECK(header.is_fortran_order, "has a header without 'fortran_order'");
  NPY_CHECK(header.shape, "has a header without 'shape'");
  NPY_CHECK(!*header.is_fortran_order, "is in Fortran order, expected C order");
  const ElementType type = element_type(name, *header.descr);
  const std::span<const std::byte> data = bytes.subspan(parts.elements_begin);

  Recording recording = shape_recording(name, header, data.size());
  const std::size_t num_ids = data.size() / type.num_bytes;
  recording.ids.resize(num_ids);
  for (std::size_t i = 0; i < num_ids; ++i) {
    const std::int64_t id = load(&data[i * type.num_bytes], type);
    const auto row_ids = static_cast<std::size_t>(recording.num_layers * recording.top_k);
    NPY_CHECK(id >= -1 && id < kMaxExperts, "names expert {} for token {}, expected -1 or 0 to {}",
              id, i / row_ids, kMaxExperts - 1);
    recording.ids[i] = static_cast<std::int32_t>(id);
    recording.max_id = std::max(recording.max_id, static_cast<int>(id));
  }
  return recording;
}

Recording read_npy(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  FERRY_CHECK(fd.is_open(), ErrorCode::kSystem, "cannot open recording '{}': {}", path,
              errno_text(errno));
  struct stat status = {};
  FERRY_CHECK(::fstat(fd.get(), &status) == 0, ErrorCode::kSystem,
              "cannot examine recording '{}': {}", path, errno_text(errno));
  const std::string& name = path;
  NPY_CHECK(S_ISREG(status.st_mode), "is not a regular file");
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 29;
  NPY_CHECK(status.st_size <= kMostBytes, "has {}, expected at most {}",
            human_bytes(status.st_size), human_bytes(kMostBytes));
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    FERRY_CHECK(got >= 0, ErrorCode::kSystem, "cannot read recording '{}': {}", path,
                errno_text(errno));
    if (got == 0) break;  // it shrank: the parser finds it truncated
    filled += static_cast<std::size_t>(got);
  }
  return parse_npy(path, std::span(bytes).first(filled));
}

#undef NPY_CHECK

}  // namespace ferry::bench
