#pragma once

#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "hawser/error.h"

namespace hawser {

// Writes all of `bytes`, unless the descriptor reports an error. Blocks while the descriptor does.
void write_all(int descriptor, std::string_view bytes) noexcept;

// Sends datagrams to a Unix socket, without blocking. Any thread.
class DatagramSender {
 public:
  // `invalid_argument`: the path is empty or longer than an address. `unavailable`: nothing listens there.
  static Result<DatagramSender> to(std::string path);
  // False if the receiver is absent, its queue is full, or the datagram is too long for it. A receiver that has been
  // replaced at the path receives again.
  bool send(std::string_view datagram) const noexcept;

 private:
  DatagramSender(Descriptor socket, std::string path) : socket_(std::move(socket)), path_(std::move(path)) {}

  Descriptor socket_;
  std::string path_;
};

}  // namespace hawser
