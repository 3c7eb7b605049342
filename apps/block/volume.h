#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "block/extent_list.h"
#include "hawser/bytes.h"
#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/sync.h"
#include "hawser/task.h"

namespace hawser::block {

struct VolumeOptions {
  // Bytes of reads and writes in flight. Requests beyond it wait.
  std::size_t bytes_in_flight_max = std::size_t{64} << 20;
};

// The name by which the server finds the volume that has `name` now and no other one: NAME@ID. `name` itself if the
// server is older than these names.
Task<Result<std::string>> find_unique_name(Client& client, std::string name);

// A volume of a block server, over any transport of `client`, which outlives this object and its requests. Used from
// the client's thread. Memory of a request stays valid until its task has ended. Requests of any size are possible:
// they are sent in parts of at most 32 MiB, one after the other. Errors: `application` with an errno value from the
// server (docs/block.md), and those of calls.
//
// From the first size() on, the object means the volume that had the name then: after its removal, requests fail with
// ENOENT, or with ENODEV if another volume has the name. `name` may be the result of find_unique_name().
class Volume {
 public:
  Volume(Client& client, std::string name, VolumeOptions options = {});

  const std::string& name() const noexcept { return name_; }
  Task<Result<std::uint64_t>> size();
  // The bytes are received into `into` directly.
  Task<Result<void>> read(std::uint64_t offset, MutableBytes into);
  // The bytes are sent from `bytes` directly. `fua`: they are durable when the task ends.
  Task<Result<void>> write(std::uint64_t offset, Bytes bytes, bool fua = false);
  // The writes that ended before the call are durable when the task ends.
  Task<Result<void>> flush();
  Task<Result<void>> discard(std::uint64_t offset, std::uint64_t bytes);
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate = true, bool fua = false);
  // See list_extents().
  Task<Result<std::vector<ExtentStatus>>> extents(std::uint64_t offset, std::uint64_t bytes, std::uint32_t count_max);

 private:
  // Permits of the semaphore count so many bytes.
  static constexpr std::size_t permit_bytes = 4096;
  std::size_t permits_of(std::size_t bytes) const noexcept;
  const std::string& target() const noexcept { return unique_name_.empty() ? name_ : unique_name_; }

  Client& client_;
  const std::string name_;
  std::string unique_name_;  // Set once: requests in flight refer to it. Empty before the first size().
  const std::size_t permits_;
  Semaphore in_flight_;
};

}  // namespace hawser::block
