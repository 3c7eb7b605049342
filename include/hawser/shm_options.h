#pragma once

#include <cstddef>

namespace hawser {

// Shared memory between two processes of one host. The memory is reserved for each connection and taken from the system
// only as it is used: a connection that carries small messages takes its two rings and a few pages.
struct ShmOptions {
  // Messages on their way to the peer, in each direction: the ring that they pass through. A power of two from 64 KiB
  // to 64 MiB; both sides use the smaller one of theirs.
  std::size_t ring_bytes = 256 * 1024;
  // Payloads above eager_bytes, in each direction: written here once and read in place, until the receiver lets go of
  // them. A power of two from 16 KiB to 1 GiB; 0 is none, then they pass through the ring in portions, as they do when
  // it is full. Both sides use the smaller one of theirs.
  std::size_t slab_bytes = std::size_t{4} << 20;
  // Payloads up to this size travel in the ring beside their message. At most an eighth of ring_bytes.
  std::size_t eager_bytes = 8 * 1024;
  // Payloads from this size on are not written to the slab but read by the receiver from where the sender has them
  // (process_vm_readv), straight to their final place, where the system allows it: then there is one copy and no
  // bound but message_bytes_max. SIZE_MAX is never; at least eager_bytes + 1.
  std::size_t direct_read_bytes_min = std::size_t{1} << 20;
  // The peer is shown what a tick has written once it is 1 KiB, then twice as much each time, up to this: so it begins
  // to work soon, and is not disturbed often. The rest at the end of the tick. 1 to ring_bytes.
  std::size_t early_publish_bytes = 16 * 1024;
  // Connections at once on one loop; further ones take the next transport. Each has at most three descriptors.
  std::size_t connections_max = 4096;

  friend bool operator==(const ShmOptions&, const ShmOptions&) = default;
};

}  // namespace hawser
