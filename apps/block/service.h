#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "block/extent_list.h"
#include "block/memory_in_flight.h"
#include "block/store/store.h"
#include "block/volume_openings.h"
#include "block/volume_rules.h"
#include "hawser/context.h"
#include "hawser/handler_options.h"
#include "hawser/identity.h"
#include "hawser/method.h"
#include "hawser/task.h"

namespace hawser {
class Server;
}

namespace hawser::block {

// Bytes of one read or write.
inline constexpr std::uint64_t request_bytes_max = std::uint64_t{32} << 20;
// Bytes of a volume that one scrub verifies. A server that stops waits for it.
inline constexpr std::uint64_t scrub_bytes_max = std::uint64_t{1} << 30;

// Limit of the name of a client, and of the id of its process.
inline constexpr std::size_t client_name_bytes_max = 512;

// A volume as a client sees it.
struct VolumeStatus {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t marked_regions = 0;
  std::uint64_t recovered_blocks = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t known_damaged = 0;
  bool preallocated = false;
  bool read_only = false;
  std::string error;    // Why the volume cannot be used; empty if it can.
  std::string warning;  // VolumeInfo::warning.
};

// Before the id of an opening. Not in the name of a volume.
inline constexpr char opening_separator = '#';

// A volume that was opened.
struct OpenedVolume {
  std::string name;    // NAME@ID#OPENING: see VolumeService::open().
  std::string medium;  // VolumeDirectory::medium().
  VolumeStatus status;
};

// The damaged blocks of a part of a volume.
struct ScrubStatus {
  std::uint64_t size = 0;  // The whole volume has so many bytes.
  std::uint64_t blocks = 0;
  std::uint64_t damaged = 0;
  std::vector<std::uint64_t> listed;
};

// Memory of the reads and writes in progress of all clients.
inline constexpr std::uint64_t memory_in_flight_usual = std::uint64_t{1} << 30;

// The handlers of a block server. All of them block, so that they or their parts are offloaded. Errors are those of
// store_error.h. The names and types of the methods are a wire interface: it grows by new methods.
class VolumeService {
 public:
  // `memory_in_flight`: at least request_bytes_max. Reads beyond it wait, and writes are received into memory that
  // counts in ServerOptions::receive_bytes_max; if they wait for a thread, they wait for memory first.
  // `direct_bytes_max`: reads and writes of at most so many bytes are made on the thread of the connection, for volumes
  // in memory. 0: none, and volumes may be elsewhere.
  explicit VolumeService(VolumeStore& store, std::uint64_t memory_in_flight = memory_in_flight_usual,
                         VolumeRules rules = {}, std::size_t direct_bytes_max = 0);
  // `server` does not outlive this.
  void attach(Server& server);
  // Bytes of `memory_in_flight` that requests have. Any thread.
  std::uint64_t memory_in_use() const noexcept { return memory_.used(); }

  // The bytes are received from the memory into which the disk has put them.
  Task<Result<std::string_view>> read(Context& context, std::string_view name, std::uint64_t offset,
                                      std::uint64_t bytes);
  // The attachment has the bytes.
  Result<void> write(Context& context, std::string_view name, std::uint64_t offset, bool fua);
  // The method `write` of a server whose volumes are in memory.
  Task<Result<void>> write_in_memory(Context& context, std::string_view name, std::uint64_t offset, bool fua);
  Result<void> flush(Context& context, std::string_view name);
  Result<void> discard(Context& context, std::string_view name, std::uint64_t offset, std::uint64_t bytes);
  Result<void> write_zeroes(Context& context, std::string_view name, std::uint64_t offset, std::uint64_t bytes,
                            bool deallocate, bool fua);
  // See list_extents().
  Result<std::vector<ExtentStatus>> extents(Context& context, std::string_view name, std::uint64_t offset,
                                            std::uint64_t bytes, std::uint32_t count_max);

  // The name NAME@ID, which every method but create() and remove() accepts in the place of the name. It never means
  // another volume: when one has got the name after a removal, requests fail with ENODEV.
  Result<std::string> unique_name(Context& context, std::string_view name);

  // Opens the volume, for requests with the name of the result. `name` may be that of an earlier opening, which ends:
  // its requests other than reads have ended when this returns, and those that arrive later fail with ESTALE. So do all
  // of them after the server has been restarted. Needs the access `read`.
  Result<OpenedVolume> open(Context& context, std::string_view name);

  // As open(). Besides, the requests of earlier processes of the client that name an opening of the volume have ended
  // when this returns, and these processes cannot open it any more: ESHUTDOWN. `client` and `process` have at most
  // client_name_bytes_max bytes. An empty name is that of no client, and so is the name of one that may not write. A
  // client with another proved identity is another client.
  Result<OpenedVolume> open_for(Context& context, std::string_view name, std::string_view client,
                                std::string_view process);

  // Identifies this start of the server: a random number. Only `nbd` of versions without open() calls it.
  std::uint64_t instance() const noexcept { return instance_; }
  // `read_only` is also true if the caller may not write.
  Result<VolumeStatus> info(Context& context, std::string_view name);
  // The volumes that the caller may read.
  std::vector<VolumeStatus> list(Context& context);
  Result<void> create(Context& context, std::string_view name, std::uint64_t size, bool preallocate);
  Result<void> resize(Context& context, std::string_view name, std::uint64_t size);
  Result<void> remove(Context& context, std::string_view name);
  Result<ScrubStatus> scrub(Context& context, std::string_view name, std::uint64_t offset, std::uint64_t bytes);

 private:
  // A volume, and its opening if the request names one.
  struct Found {
    std::shared_ptr<StoredVolume> volume;
    VolumeOpenings::Use use;
    StoredVolume* operator->() const noexcept { return volume.get(); }
  };
  Result<Found> find(const Context& context, VolumeAccess access, std::string_view name);
  Result<Found> find(const Identity& client, VolumeAccess access, std::string_view name);
  Result<VolumeStatus> status_of(const Context& context, const StoredVolume& volume) const;

  VolumeStore& store_;
  const VolumeRules rules_;
  const std::size_t direct_bytes_max_;
  const std::uint64_t instance_;
  VolumeOpenings openings_;
  MemoryInFlight memory_;
};

}  // namespace hawser::block

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::block::VolumeService::write_in_memory> =
    hawser::method_name<&hawser::block::VolumeService::write>;
