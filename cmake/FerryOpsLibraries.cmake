# The libraries of src/ops: XML, YAML, ELF and regular expressions. Static where the distribution has them so, because
# their shared versions differ between Debian 12 and Ubuntu 24.04 and one build runs on both.
#   Pugixml::Pugixml  YamlCpp::YamlCpp  Elf::Elf  Re2::Re2
include(FindPackageHandleStandardArgs)

function(ferry_ops_library target header archive shared package)
  string(MAKE_C_IDENTIFIER "${shared}" id)
  find_path(FERRY_${id}_INCLUDE ${header})
  find_library(FERRY_${id}_LIBRARY NAMES ${archive} ${shared})
  mark_as_advanced(FERRY_${id}_INCLUDE FERRY_${id}_LIBRARY)
  if(NOT FERRY_${id}_INCLUDE OR NOT FERRY_${id}_LIBRARY)
    message(FATAL_ERROR "the ferry program needs ${shared} (header ${header}); "
                        "try: apt-get install ${package}, or -DFERRY_BUILD_TOOLS=OFF")
  endif()
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${FERRY_${id}_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${FERRY_${id}_INCLUDE}")
endfunction()

ferry_ops_library(Pugixml::Pugixml pugixml.hpp libpugixml.a pugixml libpugixml-dev)
ferry_ops_library(YamlCpp::YamlCpp yaml-cpp/yaml.h libyaml-cpp.a yaml-cpp libyaml-cpp-dev)
ferry_ops_library(Elf::Elf gelf.h libelf.a elf libelf-dev)
ferry_ops_library(Re2::Re2 re2/re2.h libre2.a re2 libre2-dev)
# What the static libelf itself needs: it can open compressed sections.
if(FERRY_elf_LIBRARY MATCHES "\\.a$")
  find_package(ZLIB REQUIRED)
  target_link_libraries(Elf::Elf INTERFACE ZLIB::ZLIB)
  find_library(FERRY_zstd_LIBRARY NAMES libzstd.a zstd)
  mark_as_advanced(FERRY_zstd_LIBRARY)
  if(FERRY_zstd_LIBRARY)  # from elfutils 0.189 on
    target_link_libraries(Elf::Elf INTERFACE ${FERRY_zstd_LIBRARY})
  endif()
endif()
