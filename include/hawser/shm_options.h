#pragma once

#include <cstddef>

namespace hawser {

// Options of the shared memory transport, which connects two processes of one host. Each connection reserves its
// memory, but the system allocates pages only as they are used: a connection with small messages uses its two rings and
// a few pages. docs/transports/shared-memory.md has the layout, and what a peer of the same user can do.
struct ShmOptions {
  // Size of the ring that carries the messages of one direction. A power of two from 64 KiB to 64 MiB. Both sides use
  // the smaller value of the two.
  std::size_t ring_bytes = 256 * 1024;
  // Size of the slab for payloads above eager_bytes, per direction. The sender writes a payload there once, and the
  // receiver reads it in place until it releases it. A power of two from 16 KiB to 1 GiB. 0: no slab. Without a slab,
  // or while it is full, payloads pass through the ring in parts. Both sides use the smaller value of the two.
  std::size_t slab_bytes = std::size_t{16} << 20;
  // Payloads up to this size are sent in the ring with their message. At most an eighth of ring_bytes.
  std::size_t eager_bytes = 8 * 1024;
  // Payloads of at least this size are not written to the slab, nor are smaller ones that a full slab has no room for.
  // The receiver reads them from the sender's memory (process_vm_readv), directly to their final place, if the system
  // allows it. That takes one copy; only message_bytes_max limits it. SIZE_MAX: never. At least eager_bytes + 1.
  std::size_t direct_read_bytes_min = std::size_t{8} << 20;
  // Within a tick, the sender publishes its messages when 1 KiB has been written, then after twice as much each time,
  // up to this size. So the receiver begins early and is not disturbed often. The rest is published at the end of the
  // tick. 1 to ring_bytes. A small value lets the peer begin earlier, and a large one disturbs it less.
  std::size_t early_publish_bytes = 16 * 1024;
  // Connections of one loop at the same time, with at most three descriptors each. Others use the next transport.
  std::size_t connections_max = 4096;
  bool copy_received = false;  // Copies each message before it is delivered, so that the peer cannot change it.

  friend bool operator==(const ShmOptions&, const ShmOptions&) = default;
};

}  // namespace hawser
