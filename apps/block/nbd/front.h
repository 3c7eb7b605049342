#pragma once

#include <functional>
#include <memory>
#include <string>

#include "block/nbd/acceptor.h"
#include "block/nbd/exports.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/time.h"

namespace hawser::block::nbd {

struct FrontOptions {
  std::string listen;  // "HOST:PORT", "unix:/path" or "unix:@name".
  LoopOptions loop = {};
  NbdLimits limits = {};
  // Null: clients cannot begin TLS.
  std::shared_ptr<transport::ServerSecurity> security = {};
};

// Serves exports to NBD clients on a thread of its own. Thread-safe, except for stop().
class Front {
 public:
  // Makes the exports; called on the loop, which they use. Fails if they have no names, or if the files of `security`
  // cannot be used.
  using MakeExports = std::function<std::unique_ptr<Exports>(Loop&)>;

  static Result<std::unique_ptr<Front>> start(FrontOptions options, MakeExports make);
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;
  ~Front();

  // With the port that the system has chosen.
  const std::string& address() const noexcept;
  // Requests in progress are answered within `grace`. Blocks.
  void stop(Duration grace);

 private:
  struct State;
  explicit Front(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace hawser::block::nbd
