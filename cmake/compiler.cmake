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
  # std::stop_token is an experimental part of libc++ 19.
  check_cxx_source_compiles("
    #include <version>
    #if defined(_LIBCPP_VERSION)
    #if defined(_LIBCPP_HAS_NO_EXPERIMENTAL_STOP_TOKEN) || _LIBCPP_VERSION < 190000
    #error
    #endif
    #elif !defined(_GLIBCXX_RELEASE) || _GLIBCXX_RELEASE < 12
    #error
    #endif
    int main() {}" HAWSER_CXX_LIBRARY)
  set(hawser_library_is_new "${HAWSER_CXX_LIBRARY}")
  unset(HAWSER_CXX_LIBRARY CACHE)  # The cache of a project that adds Hawser has no entries of Hawser.
  if(NOT hawser_library_is_new)
    message(FATAL_ERROR "${hawser_compiler} does not compile with libstdc++ 12 or later (Debian 12: libstdc++-12-dev), or with "
                        "libc++ 19 or later and the flags -stdlib=libc++ -fexperimental-library (Debian 12: libc++-19-dev): "
                        "install one")
  endif()
else()
  message(FATAL_ERROR "${hawser_compiler} is not supported: Hawser needs ${hawser_compilers}")
endif()
