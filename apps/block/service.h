#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "block/store/store.h"
#include "hawser/context.h"
#include "hawser/handler_options.h"

namespace hawser {
class Server;
}

namespace hawser::block {

// Bytes of one read or write.
inline constexpr std::uint64_t request_bytes_max = std::uint64_t{32} << 20;
// Bytes of a volume that one scrub verifies. A server that stops waits for it.
inline constexpr std::uint64_t scrub_bytes_max = std::uint64_t{1} << 30;

// A volume as a client sees it.
struct VolumeStatus {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t marked_regions = 0;
  std::uint64_t recovered_blocks = 0;
  std::uint64_t mismatches = 0;
  bool preallocated = false;
  bool read_only = false;
  std::string error;  // Why the volume cannot be used; empty if it can.
};

// The damaged blocks of a part of a volume.
struct ScrubStatus {
  std::uint64_t size = 0;  // The whole volume has so many bytes.
  std::uint64_t blocks = 0;
  std::uint64_t damaged = 0;
  std::vector<std::uint64_t> listed;
};

// The handlers of a block server. All of them block, so that they are offloaded. Errors are those of store_error.h.
class VolumeService {
 public:
  explicit VolumeService(VolumeStore& store) noexcept : store_(store) {}
  // `server` does not outlive this.
  void attach(Server& server);

  // The bytes are received from the memory into which the disk has put them.
  Result<std::string_view> read(Context& context, std::string_view name, std::uint64_t offset, std::uint64_t bytes);
  // The attachment has the bytes.
  Result<void> write(Context& context, std::string_view name, std::uint64_t offset, bool fua);
  Result<void> flush(std::string_view name);
  Result<void> discard(std::string_view name, std::uint64_t offset, std::uint64_t bytes);
  Result<void> write_zeroes(std::string_view name, std::uint64_t offset, std::uint64_t bytes, bool deallocate,
                            bool fua);

  Result<VolumeStatus> info(std::string_view name);
  std::vector<VolumeStatus> list();
  Result<void> create(std::string_view name, std::uint64_t size, bool preallocate);
  Result<void> resize(std::string_view name, std::uint64_t size);
  Result<void> remove(std::string_view name);
  Result<ScrubStatus> scrub(std::string_view name, std::uint64_t offset, std::uint64_t bytes);

 private:
  VolumeStore& store_;
};

}  // namespace hawser::block
