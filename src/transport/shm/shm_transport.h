#pragma once

#include <cstdint>
#include <memory>

#include "hawser/shm_options.h"
#include "hawser/transport/transport.h"

namespace hawser::transport {

// What a connection of a process with itself does with payloads that a peer could read from the sender's memory.
enum class OwnProcess : std::uint8_t {
  copy,  // Copies them, so that nobody who makes a process take itself for the peer has its memory read.
  read,  // For tests of reading that need one process only.
};

// Connections through memory that two processes of one host share, "shm". Options out of bounds are told by attach().
std::shared_ptr<Transport> make_shm_transport(const ShmOptions& options, OwnProcess own = OwnProcess::copy);

}  // namespace hawser::transport
