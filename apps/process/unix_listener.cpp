#include "process/unix_listener.h"

#include <optional>
#include <utility>

#include "base/try.h"
#include "transport/tcp/unix_listening.h"

namespace hawser::process {

Result<UnixListener> listen_at_unix(const std::string& address, int backlog) {
  TRY(const std::optional<transport::SocketAddress> parsed, transport::parse_unix(address));
  if (!parsed) {
    return fail(Error::of_connection(ErrorCode::invalid_argument,
                                     "\"" + address + "\" is not an address: use unix:/path or unix:@name"));
  }
  TRY(transport::UnixListening listening, transport::listen_unix(*parsed, backlog));
  auto file = std::make_shared<transport::SocketFile>(std::move(listening.file));
  return UnixListener{listening.socket.release(), std::move(file)};
}

}  // namespace hawser::process
