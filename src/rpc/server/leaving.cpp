#include <future>
#include <memory>
#include <utility>

#include "rpc/server/inspector.h"
#include "rpc/server/server_state.h"

namespace hawser {
namespace {

// Fulfils its promise when nobody holds it any more: when the last loop has let go of it, or has ended.
struct HeldByLoops {
  ~HeldByLoops() { promise.set_value(); }
  std::promise<void> promise;
};

}  // namespace

std::vector<Descriptor> Server::State::copy_listening() {
  std::vector<Descriptor> copies;
  auto held = std::make_shared<HeldByLoops>();
  const std::future<void> released = held->promise.get_future();
  {
    const std::lock_guard lock(lifecycle);
    if (own_loops.empty()) return copies;
    own_loops.front()->post([this, &copies, kept = std::move(held)] {
      if (listener != nullptr) copies = listener->copies();
    });
  }
  released.wait();
  return copies;
}

void Server::State::leave(Duration limit) {
  auto held = std::make_shared<HeldByLoops>();
  const std::future<void> released = held->promise.get_future();
  {
    const std::lock_guard lock(lifecycle);
    if (own_loops.empty()) return;
    // The mailboxes of the other loops have the accepted connections before this work.
    own_loops.front()->post([this, limit, kept = std::move(held)] {
      if (listener == nullptr) return;
      listener->keep_file();
      listener.reset();
      for (const auto& loop : loops) {
        loop->inspect([limit, kept](rpc::ServerLoop& one) { one.leave(limit, kept); });
      }
    });
  }
  released.wait();
}

namespace rpc {

std::vector<Descriptor> Inspector::copy_listening(Server& server) { return server.state_->copy_listening(); }
void Inspector::leave(Server& server, Duration limit) { server.state_->leave(limit); }
LogSink Inspector::log(const Server& server) { return server.state_->log_sink(); }

}  // namespace rpc
}  // namespace hawser
