#pragma once

#include <cstdint>
#include <memory>

#include "hawser/shm_options.h"
#include "hawser/transport/transport.h"

namespace hawser::transport {

// How a connection of a process with itself treats payloads that a peer could read from the sender's memory.
enum class OwnProcess : std::uint8_t {
  copy,  // Copies them, so that nobody can make a process read its own memory by pretending to be the process itself.
  read,  // Reads them; for tests of reading that run in one process.
};

// Returns a transport over memory that two processes of one host share, "shm". attach() reports options that are out of
// bounds.
std::shared_ptr<Transport> make_shm_transport(const ShmOptions& options, OwnProcess own = OwnProcess::copy);

}  // namespace hawser::transport
