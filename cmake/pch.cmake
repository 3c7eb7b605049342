# hawser_precompile(TARGET NAME [HEADER...]): with HAWSER_PCH, TARGET uses the precompiled header called NAME, which
# holds the standard headers and HEADER...; the first user's HEADER... count. A target that uses it must be compiled
# with hawser_flags and nothing that changes how a header reads.
function(hawser_precompile target name)
  if(NOT HAWSER_PCH)
    return()
  endif()
  if(NOT TARGET hawser_pch_${name})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch/${name}.cpp CONTENT "// Carries the precompiled header.\n")
    add_library(hawser_pch_${name} OBJECT ${PROJECT_BINARY_DIR}/pch/${name}.cpp)
    target_link_libraries(hawser_pch_${name} PRIVATE hawser_flags)
    target_precompile_headers(
      hawser_pch_${name} PRIVATE <algorithm> <array> <atomic> <chrono> <coroutine> <cstdint> <cstring> <deque>
                                 <expected> <functional> <memory> <mutex> <optional> <span> <string> <string_view>
                                 <thread> <tuple> <unordered_map> <utility> <variant> <vector> ${ARGN})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # Without a time stamp in it, ccache can keep the result.
      target_compile_options(hawser_pch_${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM hawser_pch_${name})
endfunction()
