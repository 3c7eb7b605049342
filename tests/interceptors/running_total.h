#pragma once

#include <cstdint>

#include "hawser/context.h"
#include "hawser/stream.h"
#include "hawser/task.h"

namespace hawser::interceptors {

// Writes the total of the numbers so far after each one, and returns that of all.
inline Task<Result<std::uint64_t>> running_total(Context&, Reader<std::uint64_t> reader, Writer<std::uint64_t> writer) {
  std::uint64_t total = 0;
  for (;;) {
    auto item = co_await reader.next();
    if (!item) co_return std::unexpected(item.error());
    if (!*item) break;
    total += **item;
    auto written = co_await writer.write(total);
    if (!written) co_return std::unexpected(written.error());
  }
  co_return total;
}

}  // namespace hawser::interceptors
