#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "hawser/hawser.h"

// Handlers of the servers of this suite.
namespace hawser::conformance {

using namespace std::chrono_literals;

// ---- Plain functions ----

inline std::string_view echo(std::string_view text) { return text; }
inline std::string owned(std::string text) { return text + "!"; }
inline std::int64_t add(std::int32_t a, std::int64_t b) { return a + b; }
inline void nothing() {}
inline std::span<const std::uint32_t> numbers(std::span<const std::uint32_t> values) { return values; }
inline std::vector<std::uint64_t> squares(std::vector<std::uint64_t> values) {
  for (std::uint64_t& value : values) value *= value;
  return values;
}

struct Point {
  std::int32_t x = 0;
  std::int32_t y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};
struct Shape {
  std::string name;
  std::vector<Point> points;
  std::optional<Point> centre;
  std::map<std::string, double> weights;
  std::variant<std::int32_t, std::string> tag;
  friend bool operator==(const Shape&, const Shape&) = default;
};
inline Shape mirror(const Shape& shape) {
  Shape out = shape;
  for (Point& point : out.points) point.x = -point.x;
  return out;
}
inline std::vector<std::string> lines(std::vector<std::string_view> parts, bool reverse) {
  std::vector<std::string> out(parts.begin(), parts.end());
  if (reverse) out = {out.rbegin(), out.rend()};
  return out;
}
// Behaves like a handler that returns the error of a call of its own.
inline Result<int> passes_on(int code) { return fail(static_cast<ErrorCode>(code), "upstream"); }
inline std::string zeros(std::uint64_t bytes) { return std::string(bytes, '0'); }

// ---- Errors ----

inline Result<std::uint32_t> half(std::uint32_t value) {
  if (value % 2 != 0) return std::unexpected(Error::application(42, "odd"));
  return value / 2;
}
inline Result<void> accept_even(std::uint32_t value) {
  if (value % 2 != 0) return std::unexpected(Error::application(-7, "odd as well"));
  return {};
}
inline int throws(int kind) {
  if (kind == 0) throw std::runtime_error("no such thing");
  throw kind;
}
inline Task<Result<std::string>> later_error(Context& context) {
  co_await context.loop().sleep(1ms);
  co_return std::unexpected(Error::application(9, "later"));
}
inline Task<int> later_throws(Context& context) {
  co_await context.loop().sleep(1ms);
  throw std::runtime_error("thrown later");
}

// ---- Coroutines ----

inline Task<std::string> slow_echo(Context& context, std::string text, std::uint32_t milliseconds) {
  co_await context.loop().sleep(std::chrono::milliseconds(milliseconds));
  co_return text;
}
// Views of the arguments stay valid while a coroutine waits, and so do views that it returns.
inline Task<std::string_view> slow_view(Context& context, std::string_view text) {
  co_await context.loop().sleep(2ms);
  co_return text;
}
inline Task<void> slow_nothing(Context& context) { co_await context.loop().sleep(1ms); }

// Member functions of each kind, with counters of how their calls ended.
class TestService {
 public:
  std::uint32_t order(std::string_view what, std::uint32_t count) {
    stock_[std::string(what)] += count;
    return stock_[std::string(what)];
  }
  Task<std::uint32_t> order_later(Context& context, std::string what, std::uint32_t count) {
    co_await context.loop().sleep(1ms);
    co_return order(what, count);
  }
  std::size_t kinds() const { return stock_.size(); }

  // Waits until its token is stopped.
  Task<int> wait_for_stop(Context& context) {
    ++waiting;
    const Result<void> slept = co_await context.loop().sleep(1h, context.token());
    --waiting;
    if (!slept) ++stopped;
    co_return 0;
  }
  // Ignores its token and waits for open().
  Task<int> wait_for_gate(Context& context) {
    ++waiting;
    while (!gate) {
      co_await context.loop().sleep(1ms);
    }
    --waiting;
    co_return 1;
  }
  int waiting = 0;
  int stopped = 0;
  bool gate = false;

 private:
  std::map<std::string, std::uint32_t> stock_;
};

// ---- Context ----

// Returns a description of the call's context.
inline std::string about(Context& context) {
  std::string out = "peer=" + std::string(context.peer().empty() ? "no" : "yes");
  out += context.deadline() ? " deadline" : " forever";
  out += context.token().stop_possible() ? " token" : " no-token";
  return out;
}
inline Task<std::int64_t> remaining_ms(Context& context) {
  if (!context.deadline()) co_return -1;
  co_return std::chrono::duration_cast<std::chrono::milliseconds>(*context.deadline() - context.loop().now()).count();
}
// Sends the received attachment and metadata back, and returns their sizes.
inline std::uint64_t reflect(Context& context, std::string_view text) {
  context.set_attachment(Buffer::copy_of(context.attachment()));
  for (auto& [key, value] : context.metadata().copy()) context.add_metadata(key, value);
  return text.size() + context.attachment().size();
}
inline Task<std::uint64_t> reflect_later(Context& context, std::string_view text) {
  co_await context.loop().sleep(1ms);
  co_return reflect(context, text);
}
inline void add_entries(Context& context, std::uint32_t count, std::uint32_t value_bytes) {
  for (std::uint32_t i = 0; i < count; ++i)
    context.add_metadata("key" + std::to_string(i), std::string(value_bytes, 'v'));
}

// ---- Blocking ----

inline std::shared_future<void> blocked_until;
inline std::uint32_t block_until() {
  blocked_until.wait();
  return 1;
}
inline std::string block_about(Context& context, std::string_view text) {
  std::this_thread::sleep_for(1ms);
  context.add_metadata("from", "offload");
  return std::string(text) + (context.token().stop_possible() ? " token" : "");
}
inline int block_throws(int) { throw std::runtime_error("thrown while blocking"); }

}  // namespace hawser::conformance
