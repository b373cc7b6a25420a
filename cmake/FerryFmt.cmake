# ferry_fmt: fmt inside our own binaries, hidden, so that they run where fmt is not installed.
find_package(fmt REQUIRED)
get_target_property(fmt_type fmt::fmt TYPE)
if(fmt_type STREQUAL "SHARED_LIBRARY" AND fmt_VERSION MATCHES "^9\\.")
  # Debian 12 and Ubuntu 24.04 ship fmt 9 as a shared library only. Header-only use would do as
  # well, and costs three seconds in every source file.
  get_target_property(fmt_include_dir fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  add_library(ferry_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cc)
  target_compile_features(ferry_fmt PUBLIC cxx_std_20)
  target_include_directories(ferry_fmt SYSTEM PUBLIC ${fmt_include_dir})
  set_target_properties(ferry_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF
                        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
else()
  add_library(ferry_fmt INTERFACE)
  target_link_libraries(ferry_fmt INTERFACE fmt::fmt)
endif()
