#pragma once

#include <expected>
#include <utility>

#include "hawser/error.h"

// Evaluates a Result. Its error ends the function; else its value is what the statement gives.
//
//   TRY(check(options));                                  // The value is void, or nobody needs it.
//   TRY(const std::size_t taken, take(bytes));            // The declared name gets the value.
//   CO_TRY(Message&& reply, co_await std::move(asking));  // In a coroutine.
//
// `T x` moves the value to x. `T&& x` and `const T& x` name the value without a move: it lives until the end of the
// block. An error is moved from a temporary Result and copied from a variable: `TRY(outcome);` does not change outcome.
// A declaration with a comma outside of parentheses, such as std::pair<A, B> x, does not compile: write auto.
//
// These are statements because a co_await within an expression `({ })` is not portable. The form with a declaration is
// several statements, which the body of an if without braces cannot be: that does not compile. Installed headers do
// not include this file.
#define TRY(first, ...) HAWSER_TRY(return, HAWSER_TRY_NAME(__LINE__), first __VA_OPT__(, ) __VA_ARGS__)
#define CO_TRY(first, ...) HAWSER_TRY(co_return, HAWSER_TRY_NAME(__LINE__), first __VA_OPT__(, ) __VA_ARGS__)

#define HAWSER_TRY_JOINED(line) tried_##line
#define HAWSER_TRY_NAME(line) HAWSER_TRY_JOINED(line)

#define HAWSER_TRY_FIRST(form, ...) form
#define HAWSER_TRY(leave, tried, first, ...) \
  HAWSER_TRY_FIRST(__VA_OPT__(HAWSER_TRY_DECLARE, ) HAWSER_TRY_CHECK, )(leave, tried, first __VA_OPT__(, ) __VA_ARGS__)

#define HAWSER_TRY_CHECK(leave, tried, ...)                                               \
  do {                                                                                    \
    if (decltype(auto) tried = (__VA_ARGS__); !tried)                                     \
      leave std::unexpected<hawser::Error>(std::forward<decltype(tried)>(tried).error()); \
  } while (false)

#define HAWSER_TRY_DECLARE(leave, tried, declaration, ...)                                        \
  decltype(auto) tried = (__VA_ARGS__);                                                           \
  if (!tried) leave std::unexpected<hawser::Error>(std::forward<decltype(tried)>(tried).error()); \
  declaration = *std::forward<decltype(tried)>(tried)
