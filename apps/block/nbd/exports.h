#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "block/volume_rules.h"
#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/task.h"

namespace hawser::block::nbd {

// Properties of an export, which are constant for a connection.
struct ExportInfo {
  std::string name;
  std::uint64_t size = 0;
  bool read_only = false;
};

// Consecutive bytes with one state.
struct Extent {
  std::uint64_t bytes = 0;
  std::uint32_t state = 0;  // state_hole, state_zero
};

// The state of bytes that are zeros, or that may be data. A write of zeros may need space, unless the volume has all of
// its space.
std::uint32_t state_of(bool zeros, bool preallocated) noexcept;

// A volume. Requests may run concurrently; those that overlap are executed one after the other. flush() covers every
// write that ended before it, of whichever connection. Memory of a request stays valid until its task has ended. Errors
// have errno values, as those of store_error.h.
class NbdDevice {
 public:
  NbdDevice() noexcept = default;
  NbdDevice(const NbdDevice&) = delete;
  NbdDevice& operator=(const NbdDevice&) = delete;
  virtual ~NbdDevice() = default;

  virtual const ExportInfo& info() const noexcept = 0;
  // A stop is requested, on the loop, when writes may be lost of which the volume does not know: connections that use
  // the device end. Without a state: never.
  virtual std::stop_token lost() const noexcept { return {}; }
  // The client has gone without a disconnect. Requests that have not begun fail: the client may have sent them again
  // over another connection, and newer writes of the same blocks after them.
  virtual void abandon() noexcept = 0;
  virtual Task<Result<void>> read(std::uint64_t offset, MutableBytes into) = 0;
  virtual Task<Result<void>> write(std::uint64_t offset, Bytes bytes, bool fua) = 0;
  // Reads and writes of at most so many bytes may be made by read_now() and write_now() on the loop. 0: none.
  virtual std::size_t direct_bytes_max() const noexcept { return 0; }
  // Nothing if they would wait for another request: read() and write() do so.
  virtual std::optional<Result<void>> read_now(std::uint64_t offset, MutableBytes into);
  virtual std::optional<Result<void>> write_now(std::uint64_t offset, Bytes bytes, bool fua);
  virtual Task<Result<void>> flush() = 0;
  virtual Task<Result<void>> discard(std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool fua) = 0;
  // True if write_zeroes() is faster than a write of zeros.
  virtual bool fast_zeroes(std::uint64_t bytes, bool deallocate) const noexcept = 0;
  // The states from `offset` on: at least one extent, at most `extents_max`, which together may be shorter than
  // `bytes`.
  virtual Task<Result<std::vector<Extent>>> extents(std::uint64_t offset, std::uint64_t bytes,
                                                    std::size_t extents_max) = 0;
};

// The volumes of a server, by name, as far as the rules permit them.
class Exports {
 public:
  explicit Exports(VolumeRules rules = {}) noexcept : rules_(std::move(rules)) {}
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;
  virtual ~Exports() = default;

  // The volumes that the client `who` may read.
  Task<Result<std::vector<std::string>>> names(Identity who);
  // An empty name is that of the only volume, if there is one only. The device is read-only if `who` may not write.
  Task<Result<std::shared_ptr<NbdDevice>>> open(std::string name, Identity who);
  // False if the rules have changed since open(), so that `who` may not use the device any more as it is.
  bool permits(const Identity& who, const ExportInfo& device) const;
  // Ends requests in progress with an error, if they wait for another process.
  virtual void close() {}

 private:
  virtual Task<Result<std::vector<std::string>>> list() = 0;
  // `writable`: the device is not read-only because of the rules.
  virtual Task<Result<std::shared_ptr<NbdDevice>>> find(std::string name, bool writable) = 0;

  const VolumeRules rules_;
};

}  // namespace hawser::block::nbd
