#pragma once

#include <memory>
#include <optional>

#include "tests/simulation/world.h"

namespace hawser::simulation {

struct Canceller;

// A user of one Client: connects, makes calls of every kind concurrently, and checks their outcomes.
class ClientActor {
 public:
  explicit ClientActor(World& world) : world_(world) {}
  Task<void> run();

 private:
  // The connection on which a call began.
  struct Began {
    unsigned connections;
    std::uint64_t failovers;
    Time time;
  };

  Task<bool> connect();
  Task<void> settle();
  Task<void> one_call();

  Task<void> echo();
  Task<void> given();
  Task<void> mirror();
  Task<void> numbers();
  Task<void> nothing();
  Task<void> fails();
  Task<void> attached();
  Task<void> into();
  Task<void> slow();
  Task<void> slow_token();
  Task<void> slow_mirror();
  Task<void> unknown();
  Task<void> pipelined();
  Task<void> dropped_pending();
  Task<void> upload();
  Task<void> download();
  Task<void> chat();
  Task<void> ping();
  Task<void> connect_again();

  Task<void> write_items(std::uint64_t id, Writer<std::string> writer, std::uint32_t count, std::uint32_t& written);
  // `whole`: a stream that ends without an error has so many items, if that is known.
  Task<void> read_items(std::uint64_t id, std::uint64_t mark, Reader<std::string> reader, std::uint32_t sleep_us,
                        std::optional<std::uint32_t> whole, std::uint32_t& read);
  CallOptions draw_options(std::uint64_t id, const Canceller& canceller);
  Began begin() const { return {connections_, client_ ? client_->failovers() : 0, world_.loop.now()}; }
  bool lost(const Began& began) const {
    return connections_ != began.connections || !client_ || !client_->connected() ||
           client_->failovers() != began.failovers;
  }
  // Returns false if the call failed, and checks the reason.
  template <class R>
  bool ended(CallGuard& guard, const Began& began, const Result<R>& result, const CallOptions* options = nullptr) {
    if (result) {
      guard.replied();
      return true;
    }
    check_error(guard, began, result.error(), options);
    guard.failed(result.error(), lost(began));
    return false;
  }
  void check_error(const CallGuard& guard, const Began& began, const Error& error, const CallOptions* options);

  World& world_;
  std::unique_ptr<Client> client_;
  unsigned connections_ = 0;  // Number of connections so far.
  unsigned connecting_ = 0;   // Number of running calls of Client::connect(), which the client must outlive.
  Scope calls_;
};

// A user of a ClientPool.
class PoolActor {
 public:
  explicit PoolActor(World& world);
  Task<void> run();

 private:
  Task<void> echo();
  Task<void> pipelined();
  Task<void> slow();
  void ended(CallGuard& guard, const Error& error);

  World& world_;
  std::shared_ptr<ClientPool> pool_;
  Scope calls_;
};

}  // namespace hawser::simulation
