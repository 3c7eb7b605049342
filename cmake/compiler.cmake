# Refuses what Hawser can't be built with, with the reason. README.md has the table of compilers.
set(hawser_compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER})")
set(hawser_compilers "GCC 13 or later, or Clang 19 or later: choose one with -DCMAKE_CXX_COMPILER=..., such as clang++-19")

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|aarch64|arm64)$")
  message(FATAL_ERROR "Hawser needs Linux on x86-64 or 64-bit Arm, and not ${CMAKE_SYSTEM_NAME} on ${CMAKE_SYSTEM_PROCESSOR}")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    message(FATAL_ERROR "${hawser_compiler} is too old, because it destroys temporaries of co_await expressions twice; "
                        "Hawser needs ${hawser_compilers}")
  endif()
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 19)
    message(FATAL_ERROR "${hawser_compiler} is too old, because it has no std::expected with libstdc++; "
                        "Hawser needs ${hawser_compilers}")
  endif()
  include(CheckCXXSourceCompiles)
  check_cxx_source_compiles("
    #include <version>
    #if !defined(_GLIBCXX_RELEASE) || _GLIBCXX_RELEASE < 12
    #error
    #endif
    int main() {}" HAWSER_LIBSTDCXX_12)
  set(hawser_library_is_new "${HAWSER_LIBSTDCXX_12}")
  unset(HAWSER_LIBSTDCXX_12 CACHE)  # The cache of a project that adds Hawser has no entries of Hawser.
  if(NOT hawser_library_is_new)
    message(FATAL_ERROR "${hawser_compiler} does not compile with libstdc++ 12 or later, the C++ library that Hawser needs: "
                        "install it (Debian 12: libstdc++-12-dev), and remove -stdlib=libc++ from the flags")
  endif()
else()
  message(FATAL_ERROR "${hawser_compiler} is not supported: Hawser needs ${hawser_compilers}")
endif()
