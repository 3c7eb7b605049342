# hawser_precompile(TARGET NAME [HEADERS HEADER...] [LIBRARIES LIBRARY...]): with HAWSER_PCH, TARGET uses the
# precompiled header NAME, which has the standard headers and HEADER... . Users of HEADER... link LIBRARY... . The first
# call with a NAME builds it. All its users must be of one kind (program or library), and must not add a flag that
# changes how a header is compiled.
function(hawser_precompile target name)
  cmake_parse_arguments(arg "" "" "HEADERS;LIBRARIES" ${ARGN})
  if(NOT HAWSER_PCH)
    return()
  endif()
  set(pch hawser_pch_${name})
  if(NOT TARGET ${pch})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch/${name}.cpp CONTENT "// Carries the precompiled header.\n")
    add_library(${pch} OBJECT ${PROJECT_BINARY_DIR}/pch/${name}.cpp)
    target_link_libraries(${pch} PRIVATE hawser_flags ${arg_LIBRARIES})
    target_precompile_headers(
      ${pch} PRIVATE <algorithm> <array> <atomic> <chrono> <coroutine> <cstdint> <cstring> <deque> <expected>
                     <functional> <memory> <mutex> <optional> <span> <string> <string_view> <thread> <tuple>
                     <unordered_map> <utility> <variant> <vector> ${arg_HEADERS})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # Without a time stamp in the header, ccache can store the result.
      target_compile_options(${pch} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      # Programs are compiled with -fPIE, and the header must be too.
      set_target_properties(${pch} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${pch} PRIVATE -fPIE)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()

# hawser_quick_test(TARGET): compiles a test program with hawser_test_flags and the header of tests.
function(hawser_quick_test target)
  target_link_libraries(${target} PRIVATE hawser_test_flags)
  hawser_precompile(${target} test HEADERS <gmock/gmock.h> <gtest/gtest.h>
                    LIBRARIES hawser GTest::gmock GTest::gtest GTest::gtest_main hawser_test_flags)
endfunction()

# hawser_quick_program(TARGET): compiles the objects of a program with hawser_test_flags and the header of programs.
function(hawser_quick_program target)
  target_link_libraries(${target} PRIVATE hawser_test_flags)
  hawser_precompile(${target} program HEADERS <CLI/CLI.hpp> <fmt/format.h> <hawser/hawser.h> <nlohmann/json.hpp>
                    LIBRARIES hawser hawser_test_flags fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json)
endfunction()

# hawser_batch(TARGET...): the sources are compiled in batches of HAWSER_BATCHES. Names in unnamed namespaces
# must differ within a target.
function(hawser_batch)
  if(HAWSER_BATCHES)
    set_target_properties(${ARGV} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${HAWSER_BATCHES})
  endif()
endfunction()
