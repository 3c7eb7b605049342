#pragma once

#include <utility>

#include "base/descriptor.h"
#include "hawser/error.h"

namespace hawser::transport::shm {

// Wakes a loop of another process: a pipe that a poller watches, and that the other process opens for itself. (An event
// descriptor can't be opened that way.) Each side opens it for reading and writing, so that it has a reader and a writer
// for as long as anybody has it: writing raises no SIGPIPE when the owner dies, and no hang-up is told.
class Doorbell {
 public:
  static Result<Doorbell> create();
  // Descriptor `fd` of process `pid`, for ringing.
  static Result<Doorbell> open(int pid, int fd);

  int fd() const noexcept { return pipe_.get(); }
  // Its owner may be gone, or have let it fill: then nothing happens.
  void ring() const noexcept;
  // Takes all rings so far.
  void silence() const noexcept;

 private:
  explicit Doorbell(Descriptor pipe) noexcept : pipe_(std::move(pipe)) {}
  Descriptor pipe_;
};

}  // namespace hawser::transport::shm
