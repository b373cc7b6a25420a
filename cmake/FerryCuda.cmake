# The CUDA toolkit, where there is one: FERRY_WITH_CUDA = AUTO takes it, ON insists, OFF leaves it out.
set(FERRY_WITH_CUDA AUTO CACHE STRING "The CUDA engine: AUTO, ON or OFF")
set_property(CACHE FERRY_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for Ampere, Hopper, Blackwell (B200 and RTX), and intermediate code for what comes.
set(FERRY_CUDA_ARCHITECTURES "80-real;90;100-real;120" CACHE STRING
    "GPU architectures of the CUDA engine, as CMAKE_CUDA_ARCHITECTURES")

set(FERRY_HAS_CUDA OFF)
string(TOUPPER "${FERRY_WITH_CUDA}" wanted)
if(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FERRY_WITH_CUDA is '${FERRY_WITH_CUDA}', expected AUTO, ON or OFF")
endif()
if(NOT wanted STREQUAL "OFF" AND NOT FERRY_SANITIZE AND NOT FERRY_FUZZ)
  find_program(FERRY_NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(FERRY_NVCC)
    execute_process(COMMAND ${FERRY_NVCC} --version OUTPUT_VARIABLE nvcc_text)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" ignored "${nvcc_text}")
    if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.8)
      set(FERRY_HAS_CUDA ON)
    elseif(wanted STREQUAL "ON")
      message(FATAL_ERROR "FERRY_WITH_CUDA=ON: ${FERRY_NVCC} is of CUDA ${CMAKE_MATCH_1}, expected "
                          "12.8 or newer")
    endif()
  elseif(wanted STREQUAL "ON")
    message(FATAL_ERROR "FERRY_WITH_CUDA=ON: no nvcc; try: install the CUDA toolkit (12.8 or newer), "
                        "or -DCUDA_PATH")
  endif()
endif()

if(FERRY_HAS_CUDA)
  set(CMAKE_CUDA_COMPILER ${FERRY_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES ${FERRY_CUDA_ARCHITECTURES})
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc speaks C++20.
  foreach(kind STANDARD EXTENSION)
    if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
      set(CMAKE_CUDA20_${kind}_COMPILE_OPTION "-std=c++20")
    endif()
  endforeach()
  find_package(CUDAToolkit REQUIRED)
endif()

# The engine's plugin: everything inside, one symbol outside, the CUDA runtime static.
#   ferry_cuda_plugin(NAME SOURCES ... DEPENDS ...)
function(ferry_cuda_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} MODULE ${arg_SOURCES})
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES
    CXX_EXTENSIONS OFF CUDA_STANDARD 20 CUDA_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    OUTPUT_NAME ferry_cuda LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  # Sums are never fused: the same bits as the CPU engine.
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-Wall,-Wextra>)
  if(FERRY_WERROR)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                                           $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} CUDA::cudart_static)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
  install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
