# hawser_precompile(TARGET NAME [HEADERS HEADER...] [LIBRARIES LIBRARY...]): with HAWSER_PCH, TARGET uses the precompiled
# header called NAME: the standard headers and HEADER..., whose users link LIBRARY... . The first call of a NAME builds
# it; all its users must be of one kind (program or library) and add no flag that changes how a header reads.
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
      # Without a time stamp in it, ccache can keep the result.
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

# hawser_batch(TARGET...): with HAWSER_QUICK_TESTS, the sources are compiled in batches. Names of unnamed namespaces must
# differ within a target.
function(hawser_batch)
  set_target_properties(${ARGV} PROPERTIES UNITY_BUILD ${HAWSER_QUICK_TESTS} UNITY_BUILD_BATCH_SIZE 6)
endfunction()
