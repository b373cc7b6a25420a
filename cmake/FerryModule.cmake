# One static, position-independent library per folder of src/.
#   ferry_module(plan SOURCES a.cc b.cc DEPENDS ferry_layout [PRIVATE_LIBS Sodium::Sodium])
function(ferry_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE_LIBS" ${ARGN})
  add_library(ferry_${name} STATIC ${arg_SOURCES})
  ferry_compile_options(ferry_${name})
  target_include_directories(ferry_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src
                                                  ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(ferry_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_LIBS})
endfunction()

# What every target of this project is compiled with; nothing is set globally.
function(ferry_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
                        CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON)
  # -ffp-contract=off: sums must give the same bits on every machine and engine.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # At -O3 GCC 12 sees overlaps in std::string that are not there (GCC bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # clang's -Wconversion covers signedness as well, which GCC's does not.
    target_compile_options(${target} PRIVATE -Wno-sign-conversion)
  endif()
  if(FERRY_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(FERRY_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${FERRY_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${FERRY_SANITIZE})
  endif()
endfunction()

# A GoogleTest program, registered as one ctest entry. Its labels are those given (default: cpu)
# and its folder, such as unit.memory or contract, by which the sanitizer runs choose.
#   ferry_test(plan_test SOURCES ... DEPENDS ... [LABELS cpu] [TIMEOUT 60])
function(ferry_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "/" "." folder "${folder}")
  add_executable(${name} ${arg_SOURCES})
  ferry_compile_options(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS};${folder}")
endfunction()
