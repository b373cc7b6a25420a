# The shared library, and what is installed: it, include/ferry, a CMake package and a pkg-config
# file. Its target is ferry_shared here, and ferry::ferry to everybody.

# ferry_library(base plan ...): the objects of these modules, whole, so that nothing the public
# headers promise is dropped by the linker.
function(ferry_library)
  add_library(ferry_shared SHARED)
  add_library(ferry::ferry ALIAS ferry_shared)
  ferry_compile_options(ferry_shared)
  foreach(module ${ARGN})
    target_sources(ferry_shared PRIVATE $<TARGET_OBJECTS:ferry_${module}>)
    # What a module needs beyond the other modules, the library needs.
    get_target_property(libraries ferry_${module} LINK_LIBRARIES)
    list(FILTER libraries EXCLUDE REGEX "^(ferry_.*|.*NOTFOUND)$")
    target_link_libraries(ferry_shared PRIVATE ${libraries})
  endforeach()
  target_link_libraries(ferry_shared PRIVATE ferry_fmt)
  if(NOT FERRY_SANITIZE)  # with a sanitizer, its runtime comes with the program
    target_link_options(ferry_shared PRIVATE -Wl,--no-undefined)
  endif()
  target_include_directories(ferry_shared INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  set_target_properties(ferry_shared PROPERTIES OUTPUT_NAME ferry EXPORT_NAME ferry
                        VERSION ${PROJECT_VERSION} SOVERSION 0
                        LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

  include(CMakePackageConfigHelpers)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ferry-config.cmake.in
    ${PROJECT_BINARY_DIR}/ferry-config.cmake INSTALL_DESTINATION ${package_dir})
  # Before 1.0 a minor version may break the interface.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/ferry-config-version.cmake
    COMPATIBILITY SameMinorVersion)
  file(RELATIVE_PATH FERRY_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
       ${CMAKE_INSTALL_PREFIX})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/ferry.pc.in ${PROJECT_BINARY_DIR}/ferry.pc @ONLY)

  install(TARGETS ferry_shared EXPORT ferry-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ferry-targets NAMESPACE ferry:: DESTINATION ${package_dir})
  install(FILES ${PROJECT_BINARY_DIR}/ferry-config.cmake
                ${PROJECT_BINARY_DIR}/ferry-config-version.cmake DESTINATION ${package_dir})
  install(FILES ${PROJECT_BINARY_DIR}/ferry.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ferry DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
endfunction()
