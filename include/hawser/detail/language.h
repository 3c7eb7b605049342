#pragma once

// C++20 has 202002. GCC 13 has 202100 with -std=c++23.
#if __cplusplus <= 202002L
#error "hawser: this library needs C++23: compile with -std=c++23"
// A file that does not exist ends the compilation, so that no further errors follow.
#include "hawser/needs_cxx23"
#endif

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#error "hawser: this GCC destroys temporaries of co_await expressions twice: use GCC 13 or later, or Clang 19 or later"
#include "hawser/needs_gcc_13"
#endif
