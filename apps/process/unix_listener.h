#pragma once

#include <memory>
#include <string>

#include "hawser/error.h"

namespace hawser::process {

// A Unix socket that listens.
struct UnixListener {
  int descriptor = -1;         // Nonblocking. The caller owns it.
  std::shared_ptr<void> file;  // Its end removes the file of the socket, unless another file has replaced that.
};
// Listens at "unix:/path" or "unix:@name", as servers of the library do: a file that a server left behind is replaced,
// and of several processes that start at one path, one listens and the others get an error.
Result<UnixListener> listen_at_unix(const std::string& address, int backlog);

}  // namespace hawser::process
