# libsodium ships a pkg-config file and no CMake package. Defines Sodium::Sodium.
find_package(PkgConfig REQUIRED)
pkg_check_modules(SODIUM QUIET IMPORTED_TARGET libsodium)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Sodium REQUIRED_VARS SODIUM_LINK_LIBRARIES
                                  VERSION_VAR SODIUM_VERSION)
if(Sodium_FOUND AND NOT TARGET Sodium::Sodium)
  add_library(Sodium::Sodium ALIAS PkgConfig::SODIUM)
endif()
