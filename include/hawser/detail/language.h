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

// After the parameters of a function: a call whose arguments are such constants that `condition` is true is an error
// with this text. Of the supported compilers, Clang alone evaluates arguments. Such functions lie between
// HAWSER_ERROR_IF_BEGIN and HAWSER_ERROR_IF_END, where Clang does not warn that it is alone.
#ifdef __clang__
#define HAWSER_ERROR_IF(condition, text) __attribute__((diagnose_if(condition, text, "error")))
#define HAWSER_ERROR_IF_BEGIN _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wgcc-compat\"")
#define HAWSER_ERROR_IF_END _Pragma("clang diagnostic pop")
#else
#define HAWSER_ERROR_IF(condition, text)
#define HAWSER_ERROR_IF_BEGIN
#define HAWSER_ERROR_IF_END
#endif
