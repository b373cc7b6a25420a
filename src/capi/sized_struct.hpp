#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace ferry::capi {

// The rules of structs that carry their size (ferry.h, "Structs"). All sizes are in bytes.

// Copies the caller's struct over `known`, which starts zeroed. Throws kInvalidArgument for a size
// that no version can have, kUnavailable where bytes beyond `known_bytes` are set.
void read_sized_bytes(const char* name, const void* given, void* known, std::size_t known_bytes);

// Copies `known` to the caller's struct as far as that reaches, zeroes what lies beyond, and leaves
// the size that the caller set. Throws kInvalidArgument likewise.
void write_sized_bytes(const char* name, const void* known, std::size_t known_bytes, void* caller);

// Throws kInvalidArgument for a size that no version can have.
void check_size(const char* name, const void* caller, std::size_t known_bytes);

// Without padding an old caller's struct has no bytes of accidental value that a later field could
// come to lie on.
template <typename T>
concept SizedStruct = std::is_standard_layout_v<T> && std::has_unique_object_representations_v<T> &&
    offsetof(T, struct_bytes)
== 0 && sizeof(T) % 8 == 0;

template <SizedStruct T>
[[nodiscard]] T read_sized(const char* name, const T* given) {
  T known{};
  if (given == nullptr) return known;
  read_sized_bytes(name, given, &known, sizeof(T));
  return known;
}

template <SizedStruct T>
void write_sized(const char* name, const T& known, T* caller) {
  write_sized_bytes(name, &known, sizeof(T), caller);
}

}  // namespace ferry::capi
