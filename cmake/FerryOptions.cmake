# What a build of FerryEP can be told.
option(FERRY_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FERRY_BUILD_TOOLS "Build the ferry program" ON)
option(FERRY_BUILD_BENCHMARKS "Build the benchmark programs" OFF)
option(FERRY_FUZZ "Build the fuzz targets (clang only)" OFF)
option(FERRY_WERROR "Treat warnings as errors" ON)
set(FERRY_SANITIZE "" CACHE STRING "Value of -fsanitize, such as 'address,undefined' or 'thread'")

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()

# Builds of the same sources in several folders share their objects where ccache is installed.
find_program(FERRY_CCACHE ccache)
if(PROJECT_IS_TOP_LEVEL AND FERRY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FERRY_CCACHE})
endif()

if(FERRY_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FERRY_FUZZ=ON needs clang, the compiler is '${CMAKE_CXX_COMPILER_ID}'; "
                        "try: cmake --preset fuzz")
  endif()
  # Every module reports its coverage to the fuzzer; only the targets link its main().
  set(FERRY_SANITIZE "fuzzer-no-link,address,undefined")
endif()

# Parts that may be absent: AUTO takes what is there, ON insists, OFF leaves it out. None of them
# has code yet, so ON cannot be satisfied and AUTO means OFF.
set(FERRY_ABSENT_PARTS "")
function(ferry_absent_part name what)
  set(FERRY_WITH_${name} AUTO CACHE STRING "${what}: AUTO, ON or OFF")
  set_property(CACHE FERRY_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${FERRY_WITH_${name}}" wanted)
  if(wanted STREQUAL "ON")
    message(FATAL_ERROR "FERRY_WITH_${name}=ON: ${what} is not part of this version yet; "
                        "try: -DFERRY_WITH_${name}=AUTO")
  elseif(NOT wanted MATCHES "^(AUTO|OFF)$")
    message(FATAL_ERROR "FERRY_WITH_${name} is '${FERRY_WITH_${name}}', expected AUTO, ON or OFF")
  endif()
  set(FERRY_ABSENT_PARTS ${FERRY_ABSENT_PARTS} ${name} PARENT_SCOPE)
endfunction()
ferry_absent_part(UCX "the UCX fabric")
ferry_absent_part(NCCL "the NCCL fabric")
ferry_absent_part(NVSHMEM "the NVSHMEM fabric")

# One line that says what this build is; called once everything is known.
function(ferry_summary)
  string(REPLACE ";" ", " absent "${FERRY_ABSENT_PARTS}")
  set(extras "")
  foreach(extra TESTS TOOLS BENCHMARKS)
    if(FERRY_BUILD_${extra})
      string(TOLOWER ${extra} word)
      list(APPEND extras ${word})
    endif()
  endforeach()
  string(REPLACE ";" ", " extras "${extras}")
  set(engines "CPU engine")
  if(FERRY_HAS_CUDA)
    string(REPLACE ";" " " architectures "${FERRY_CUDA_ARCHITECTURES}")
    set(engines "CPU and CUDA engines (${architectures})")
  endif()
  message(STATUS "FerryEP ${PROJECT_VERSION} ${CMAKE_BUILD_TYPE}: ${engines}, ${extras}; "
                 "not part of this version: ${absent}")
endfunction()
