#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/hawser.h"

namespace hawser::conformance {

using namespace std::chrono_literals;

inline Task<std::uint32_t> count_up(std::uint32_t to, Writer<std::uint32_t> out) {
  for (std::uint32_t i = 0; i < to; ++i) {
    const Result<void> written = co_await out.write(i);
    if (!written) co_return i;
  }
  co_return to;
}
inline Task<Result<std::uint64_t>> sum_up(Reader<std::uint64_t> in) {
  std::uint64_t sum = 0;
  for (;;) {
    auto item = co_await in.next();
    if (!item) co_return std::unexpected(std::move(item.error()));
    if (!*item) co_return sum;
    sum += **item;
  }
}
// Writes `count` items that it gives up before they are sent, and changes the variables that held them.
inline Task<Result<std::uint32_t>> hand_over(std::uint32_t count, Writer<std::string> out) {
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string item(1000, 'k');
    auto writing = out.write(std::move(item));
    item.assign(1000, 'x');
    const Result<void> written = co_await std::move(writing);
    if (!written) co_return std::unexpected(written.error());
  }
  auto of_temporary = out.write(std::string(1000, 'k'));
  const std::string other(1000, 'x');  // Likely where the temporary was.
  const Result<void> written = co_await std::move(of_temporary);
  if (!written) co_return std::unexpected(written.error());
  co_return count;
}
// Returns every text that it reads. The result is the number of texts.
inline Task<Result<std::uint32_t>> converse(std::string greeting, Reader<std::string_view> in,
                                            Writer<std::string> out) {
  Result<void> written = co_await out.write(greeting);
  std::uint32_t count = 0;
  for (;;) {
    auto item = co_await in.next();
    if (!item) co_return std::unexpected(std::move(item.error()));
    if (!*item) co_return count;
    const std::string text = **item + "?";
    written = co_await out.write(text);
    if (!written) co_return std::unexpected(std::move(written.error()));
    ++count;
  }
}

// Writes views of `values` and of parts of it.
inline Task<int> pour_numbers(std::vector<std::uint32_t> values, Writer<std::vector<std::uint32_t>> out) {
  for (std::size_t size = values.size();; size /= 2) {
    values.resize(size);
    const Result<void> written = co_await out.write(values);
    if (!written || size == 0) co_return 0;
  }
}
// Reads texts in place. Each view is checked after a pause, as late as it is valid. Returns the number of bytes.
inline Task<Result<std::uint64_t>> sum_in_place(Context& context, Reader<std::string> in) {
  std::uint64_t bytes = 0;
  for (;;) {
    const Result<std::optional<std::string_view>> text = co_await in.read_view();
    if (!text) co_return std::unexpected(text.error());
    if (!*text) co_return bytes;
    co_await context.loop().sleep(1ms);
    if ((*text)->find_first_not_of((*text)->substr(0, 1)) != std::string_view::npos) {
      co_return std::unexpected(Error::application(1, "the item has changed"));
    }
    bytes += (*text)->size();
  }
}
// Takes longer than the calls of the test may.
inline Task<int> answer_late(Context& context, std::uint32_t pause_ms, Reader<int>) {
  co_await context.loop().sleep(std::chrono::milliseconds(pause_ms));
  co_return 1;
}

// Handlers of streams with counters that a test watches.
class Streamer {
 public:
  // Writes until a write fails.
  Task<int> pour(std::uint32_t item_bytes, Writer<std::string> out) {
    const std::string item(item_bytes, 'p');
    for (;;) {
      const Result<void> result = co_await out.write(item);
      if (!result) {
        last_error = result.error();
        ended = true;
        co_return 0;
      }
      ++written;
    }
  }
  // Reads nothing until the gate opens.
  Task<Result<std::uint64_t>> swallow(Context& context, Reader<std::string> in) {
    while (!gate && !context.token().stop_requested()) {
      co_await context.loop().sleep(1ms);
    }
    std::uint64_t bytes = 0;
    for (;;) {
      auto item = co_await in.next();
      if (!item) {
        last_error = item.error();
        ended = true;
        co_return std::unexpected(std::move(item.error()));
      }
      if (!*item) break;
      bytes += (*item)->size();
    }
    ended = true;
    co_return bytes;
  }
  // Fails after some items in both directions.
  Task<Result<int>> stumble(std::uint32_t after, Reader<std::uint32_t> in, Writer<std::uint32_t> out) {
    for (std::uint32_t i = 0; i < after; ++i) {
      auto item = co_await in.next();
      if (!item || !*item) break;
      static_cast<void>(co_await out.write(**item));
    }
    if (throwing) throw std::runtime_error("stumbled");
    co_return std::unexpected(Error::application(5, "stumbled"));
  }
  // Ends without reading the items that have arrived.
  Task<std::uint32_t> ignore(Context& context, Reader<std::string> in) {
    auto item = co_await in.next();
    co_await context.loop().sleep(5ms);
    co_return item && *item ? static_cast<std::uint32_t>((*item)->size()) : 0;
  }

  std::uint64_t written = 0;
  bool gate = false;
  bool ended = false;
  bool throwing = false;
  std::optional<Error> last_error;
};

}  // namespace hawser::conformance
