#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tests/simulation/call_material.h"
#include "tests/simulation/client_actor.h"

namespace hawser::simulation {
namespace {

// Largest number of items, and of bytes in one item.
constexpr std::uint32_t items_max = 24;
std::uint32_t draw_item_bytes(World& world) {
  return static_cast<std::uint32_t>(world.below(world.random.chance(0.1) ? 64 * 1024 : 2048));
}

}  // namespace

Task<void> ClientActor::write_items(std::uint64_t id, Writer<std::string> writer, std::uint32_t count,
                                    std::uint32_t& written) {
  for (written = 0; written < count; ++written) {
    const Material item(item_id(id, written), draw_item_bytes(world_));
    const Result<void> done = co_await writer.write(item.text);
    if (!done) break;
    world_.checker.item_written(item_id(id, 0), item.text.size() + 4, world_.plan.server.stream_window_bytes);
  }
  writer.end();
}

Task<void> ClientActor::read_items(std::uint64_t id, std::uint64_t mark, Reader<std::string> reader,
                                   std::uint32_t sleep_us, std::optional<std::uint32_t> whole, std::uint32_t& read) {
  for (read = 0;; ++read) {
    const Result<std::optional<std::string>> item = co_await reader.next();
    if (!item) co_return;
    if (!*item) {
      world_.checker.expect(read == whole.value_or(read), "the end of a stream that failed has no error", id);
      co_return;
    }
    world_.checker.item_read(item_id(id, 1), (*item)->size() + 4);
    world_.checker.expect(is_content(item_id(id, read) ^ mark, **item), "an item has another's bytes", id);
    if (sleep_us == 0) continue;
    co_await world_.pause(std::chrono::microseconds(sleep_us));
  }
}

Task<void> ClientActor::upload() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "upload");
  const auto count = static_cast<std::uint32_t>(world_.below(items_max));
  const auto stop_after = world_.random.chance(0.8) ? count + 1 : static_cast<std::uint32_t>(world_.below(items_max));
  const auto sleep_us = static_cast<std::uint32_t>(world_.random.chance(0.3) ? 1 + world_.below(2000) : 0);
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.3));
  const CallOptions options = draw_options(guard.id, canceller);
  const Began began = begin();
  Result<StreamingCall<&Service::upload>> call =
      co_await client_->open<&Service::upload>(options, guard.id, stop_after, sleep_us);
  if (!call) {
    ended(guard, began, call, &options);
    co_return;
  }
  std::uint32_t written = 0;
  co_await write_items(guard.id, call->writer(), count, written);
  const Result<std::uint32_t> result = co_await call->finish();
  if (!ended(guard, began, result, &options)) co_return;
  world_.checker.expect(*result == std::min(written, stop_after), "an upload has lost items", guard.id);
}

Task<void> ClientActor::download() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "download");
  const auto count = static_cast<std::uint32_t>(world_.below(items_max));
  const std::uint32_t bytes_max = draw_item_bytes(world_);
  const auto sleep_us = static_cast<std::uint32_t>(world_.random.chance(0.3) ? 1 + world_.below(2000) : 0);
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.3));
  const CallOptions options = draw_options(guard.id, canceller);
  const Began began = begin();
  Result<StreamingCall<&Service::download>> call =
      co_await client_->open<&Service::download>(options, guard.id, count, bytes_max, sleep_us);
  if (!call) {
    ended(guard, began, call, &options);
    co_return;
  }
  std::uint32_t read = 0;
  co_await read_items(guard.id, 0, call->reader(), static_cast<std::uint32_t>(world_.below(3) * 500), count, read);
  const Result<std::uint32_t> result = co_await call->finish();
  if (!ended(guard, began, result, &options)) co_return;
  world_.checker.expect(*result == count && read == count, "a download has lost items", guard.id);
}

Task<void> ClientActor::chat() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "chat");
  const auto count = static_cast<std::uint32_t>(world_.below(items_max));
  const auto stop_after = world_.random.chance(0.8) ? count + 1 : static_cast<std::uint32_t>(world_.below(items_max));
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.3));
  const CallOptions options = draw_options(guard.id, canceller);
  const Began began = begin();
  Result<StreamingCall<&Service::chat>> call = co_await client_->open<&Service::chat>(options, guard.id, stop_after);
  if (!call) {
    ended(guard, began, call, &options);
    co_return;
  }
  std::uint32_t written = 0;
  std::uint32_t read = 0;
  {
    Scope both;
    both.spawn(write_items(guard.id, call->writer(), count, written));
    both.spawn(
        read_items(guard.id, reply_mark, call->reader(), static_cast<std::uint32_t>(world_.below(3) * 500), {}, read));
    co_await both.join();
  }
  const Result<std::uint32_t> result = co_await call->finish();
  if (!ended(guard, began, result, &options)) co_return;
  world_.checker.expect(*result == std::min(written, stop_after) && read == *result, "a chat has lost items", guard.id);
}

}  // namespace hawser::simulation
