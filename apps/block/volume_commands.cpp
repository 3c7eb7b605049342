// The commands that connect to a server.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "block/command.h"
#include "block/service.h"
#include "hawser/hawser.h"
#include "tls/client_options.h"

namespace hawser::block {
namespace {

struct VolumeGiven {
  std::string connect = "127.0.0.1:7750";
  std::string name = {};
  std::uint64_t size = 0;
  bool preallocate = false;
  bool shrink = false;
  std::shared_ptr<transport::ClientSecurity> security = {};
};

// Bytes of a volume that one call verifies.
constexpr std::uint64_t scrub_bytes = std::uint64_t{64} << 20;

using Body = Task<Result<int>> (*)(Client&, const VolumeGiven&);

Task<int> connected(const VolumeGiven& given, Body body) {
  ClientOptions options;
  options.call_timeout = std::chrono::minutes(10);  // A preallocation or a shrink takes long.
  options.security = given.security;
  Client client(options);
  const Result<void> there = co_await client.connect(given.connect);
  Result<int> status = 1;
  if (there) {
    status = co_await body(client, given);
  } else {
    status = std::unexpected(there.error());
  }
  if (status) co_return *status;
  fmt::print(stderr, "hawser-block: {}\n", status.error().text);
  co_return 1;
}

Run run_with(std::shared_ptr<VolumeGiven> given, Body body) {
  return [given = std::move(given), body] { return sync_wait(connected(*given, body)); };
}

std::shared_ptr<VolumeGiven> add_connect(CLI::App& command) {
  auto given = std::make_shared<VolumeGiven>();
  command.add_option("--connect", given->connect, "Address of the server")->capture_default_str();
  programs::add_tls_client_options(command, given->connect, given->security);
  return given;
}

std::shared_ptr<VolumeGiven> add_name(CLI::App& command) {
  auto given = add_connect(command);
  command.add_option("name", given->name, "The volume")->required();
  return given;
}

void add_size(CLI::App& command, VolumeGiven& given) {
  command.add_option("size", given.size, "Size, such as 10G: a multiple of 4096 bytes")
      ->transform(CLI::AsSizeValue(false))
      ->required();
}

Task<Result<int>> create(Client& client, const VolumeGiven& given) {
  const Result<void> made = co_await client.call<&VolumeService::create>(given.name, given.size, given.preallocate);
  if (!made) co_return std::unexpected(made.error());
  co_return 0;
}

Task<Result<int>> list(Client& client, const VolumeGiven&) {
  const Result<std::vector<VolumeStatus>> volumes = co_await client.call<&VolumeService::list>();
  if (!volumes) co_return std::unexpected(volumes.error());
  for (const VolumeStatus& volume : *volumes) {
    if (volume.error.empty()) {
      fmt::print("{} {}\n", volume.name, volume.size);
    } else {
      fmt::print("{} cannot be used: {}\n", volume.name, volume.error);
    }
  }
  co_return 0;
}

Task<Result<int>> info(Client& client, const VolumeGiven& given) {
  const Result<VolumeStatus> volume = co_await client.call<&VolumeService::info>(given.name);
  if (!volume) co_return std::unexpected(volume.error());
  fmt::print("name              {}\nsize              {}\nallocated         {}\npreallocated      {}\n", volume->name,
             volume->size, volume->allocated_bytes, volume->preallocated ? "yes" : "no");
  fmt::print("read-only         {}\nmarked regions    {}\nrecovered blocks  {}\ndamaged reads     {}\n",
             volume->read_only ? "yes" : "no", volume->marked_regions, volume->recovered_blocks, volume->mismatches);
  fmt::print("known damaged     {}\n", volume->known_damaged);
  if (!volume->warning.empty()) fmt::print("warning           {}\n", volume->warning);
  co_return 0;
}

Task<Result<int>> resize(Client& client, const VolumeGiven& given) {
  const Result<VolumeStatus> volume = co_await client.call<&VolumeService::info>(given.name);
  if (!volume) co_return std::unexpected(volume.error());
  if (given.size < volume->size && !given.shrink) {
    co_return fail(ErrorCode::invalid_argument,
                   fmt::format("volume {} has {} bytes, and those behind {} would be lost: use --shrink", given.name,
                               volume->size, given.size));
  }
  const Result<void> resized = co_await client.call<&VolumeService::resize>(given.name, given.size);
  if (!resized) co_return std::unexpected(resized.error());
  co_return 0;
}

Task<Result<int>> remove(Client& client, const VolumeGiven& given) {
  const Result<void> removed = co_await client.call<&VolumeService::remove>(given.name);
  if (!removed) co_return std::unexpected(removed.error());
  co_return 0;
}

Task<Result<int>> scrub(Client& client, const VolumeGiven& given) {
  std::uint64_t blocks = 0;
  std::uint64_t damaged = 0;
  for (std::uint64_t offset = 0, size = 1; offset < size; offset += scrub_bytes) {
    const Result<ScrubStatus> part = co_await client.call<&VolumeService::scrub>(given.name, offset, scrub_bytes);
    if (!part) co_return std::unexpected(part.error());
    size = part->size;
    blocks += part->blocks;
    damaged += part->damaged;
    for (const std::uint64_t block : part->listed) fmt::print("block {} is damaged\n", block);
  }
  fmt::print("{} block{} verified, {} damaged\n", blocks, blocks == 1 ? "" : "s", damaged);
  co_return damaged == 0 ? 0 : damaged_status;
}

}  // namespace

Run add_create(CLI::App& command) {
  auto given = add_name(command);
  add_size(command, *given);
  command.add_flag("--preallocate", given->preallocate, "Reserve all of the space now");
  return run_with(given, create);
}

Run add_list(CLI::App& command) { return run_with(add_connect(command), list); }
Run add_info(CLI::App& command) { return run_with(add_name(command), info); }
Run add_remove(CLI::App& command) { return run_with(add_name(command), remove); }
Run add_scrub(CLI::App& command) { return run_with(add_name(command), scrub); }

Run add_resize(CLI::App& command) {
  auto given = add_name(command);
  add_size(command, *given);
  command.add_flag("--shrink", given->shrink, "Allow a smaller size: the bytes behind it are lost");
  return run_with(given, resize);
}

}  // namespace hawser::block
