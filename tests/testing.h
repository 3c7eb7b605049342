#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "hawser/hawser.h"

// Helpers that the tests of the whole library share.
namespace hawser::testing_tools {

using namespace std::chrono_literals;

// Longest wait of any test. Nothing is expected to take nearly as long.
inline constexpr Duration patience = std::chrono::seconds(30);

template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "no error" : result.error().describe();
}

// Waits on `loop` until `condition` holds. Returns false if it does not hold within `patience`.
template <class Condition>
Task<bool> eventually(Loop& loop, Condition condition) {
  const Time end = loop.after(patience);
  while (!condition()) {
    if (loop.now() >= end) co_return false;
    co_await loop.sleep(1ms);
  }
  co_return true;
}

// Does the same on a thread without a loop.
template <class Condition>
bool soon(Condition condition) {
  for (const auto end = std::chrono::steady_clock::now() + patience; !condition();) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

template <class T>
::testing::AssertionResult is_error(const Result<T>& result, ErrorCode code, std::string_view text) {
  if (result) return ::testing::AssertionFailure() << "it succeeded";
  if (result.error().code == code && result.error().text.find(text) != std::string::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << result.error().describe();
}

inline std::string text_of(std::size_t bytes, char first = 'a') {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(first + i % 23);
  return text;
}

}  // namespace hawser::testing_tools

// Acts as EXPECT_*, and ends the coroutine if the condition does not hold.
#define REQUIRE(condition)                    \
  if (!(condition)) {                         \
    ADD_FAILURE() << "required: " #condition; \
    co_return;                                \
  }                                           \
  static_assert(true)
#define REQUIRE_OK(result)                                                                      \
  if (const auto& required_result = (result); !required_result) {                               \
    ADD_FAILURE() << #result " failed: " << ::hawser::testing_tools::error_of(required_result); \
    co_return;                                                                                  \
  }                                                                                             \
  static_assert(true)
#define EXPECT_OK(result) EXPECT_TRUE(result) << ::hawser::testing_tools::error_of(result)
#define EXPECT_ERROR(result, code, text) \
  EXPECT_TRUE(::hawser::testing_tools::is_error(result, ::hawser::ErrorCode::code, text))
