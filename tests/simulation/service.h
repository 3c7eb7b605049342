#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "hawser/hawser.h"
#include "tests/simulation/checker.h"

namespace hawser::simulation {

// The content of a reply depends on the id of its call, combined with this mark.
inline constexpr std::uint64_t reply_mark = std::uint64_t{1} << 62;
inline constexpr std::uint64_t attachment_mark = std::uint64_t{1} << 61;

inline std::uint64_t item_id(std::uint64_t call, std::uint64_t index) noexcept { return call << 20 | index; }

// Kinds of failures of Service::fails().
enum class Failure : std::uint8_t { application, result, exception, strange };

// Handlers of the simulated server. Each receives the id that its caller chose, and checks that the received data
// belong to it.
class Service {
 public:
  Service(Checker& checker, Random& random) noexcept : checker_(checker), random_(random) {}

  // Plain functions.
  std::string echo(std::uint64_t id, std::string_view data, std::uint32_t reply_bytes);
  std::string_view mirror(std::uint64_t id, std::string_view data);
  std::vector<std::uint64_t> numbers(std::uint64_t id, std::span<const std::uint64_t> values, std::string_view text);
  void nothing(std::uint64_t id);
  Result<std::string> fails(std::uint64_t id, std::uint8_t how);
  std::string attached(Context& context, std::uint64_t id, std::string_view data, std::uint32_t attachment_bytes);

  // Coroutines. `patient` ones ignore their token.
  Task<std::string> slow(Context& context, std::uint64_t id, std::string_view data, std::uint32_t reply_bytes,
                         std::uint32_t sleep_us);
  Task<Result<std::string>> slow_token(Context& context, std::uint64_t id, std::string data, std::uint32_t sleep_us);
  Task<std::string_view> slow_mirror(Context& context, std::uint64_t id, std::string_view data, std::uint32_t sleep_us);
  Task<Result<void>> slow_fails(Context& context, std::uint64_t id, std::uint8_t how, std::uint32_t sleep_us);

  // Streams. Reads up to `items_max` items and returns their number.
  Task<Result<std::uint32_t>> upload(Context& context, std::uint64_t id, std::uint32_t items_max,
                                     std::uint32_t sleep_us, Reader<std::string> reader);
  Task<Result<std::uint32_t>> download(Context& context, std::uint64_t id, std::uint32_t items, std::uint32_t bytes_max,
                                       std::uint32_t sleep_us, Writer<std::string> writer);
  Task<Result<std::uint32_t>> chat(Context& context, std::uint64_t id, std::uint32_t items_max,
                                   Reader<std::string> reader, Writer<std::string> writer);

  // Stream window of the client, for downloads.
  std::size_t client_window = 0;

 private:
  void fail_as(std::uint64_t id, std::uint8_t how, Result<void>& outcome);

  Checker& checker_;
  Random& random_;
};

// Registers all handlers above.
void register_service(Server& server, Service& service);

}  // namespace hawser::simulation
