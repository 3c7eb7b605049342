#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hawser/loop.h"
#include "hawser/shm_options.h"
#include "hawser/transport/connection.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "transport/common/backlog_watermark.h"
#include "transport/common/link_facts.h"
#include "transport/common/liveness.h"
#include "transport/common/loan_memory.h"
#include "transport/common/payload_memory.h"
#include "transport/shm/receiver.h"
#include "transport/shm/sender.h"

namespace hawser::transport::shm {

// The values on which both pending connections have agreed, and the resources of this side.
struct Link {
  std::size_t side = server_side;  // This side.
  std::shared_ptr<SharedMemory> memory;
  Doorbell bell;
  std::shared_ptr<const PeerProcess> peer;   // Null unless this process may read the peer's memory.
  std::shared_ptr<const Identity> identity;  // The process that the kernel reported at the other end of `bell`.
  std::shared_ptr<Helpers> helpers;
  ShmOptions options;  // The combined options of both sides.
  MessageLimits limits;
  std::shared_ptr<void> worker;  // The worker of this loop, and the connection's place in it.
};

// Carries messages through shared memory. It polls for them while the loop spins and messages come often. Otherwise the
// peer rings the doorbell.
class ShmConnection final : public Connection,
                            public LinkFactsSource,
                            public PayloadMemory,
                            public LoanMemory,
                            exec::Source,
                            exec::Watcher,
                            exec::TickEnd {
 public:
  ShmConnection(Loop& loop, Link link, std::unique_ptr<Stream> stream);
  ~ShmConnection() override;

  std::string_view transport() const noexcept override { return "shm"; }
  Capabilities capabilities() const noexcept override;
  std::string peer() const override { return liveness_.peer(); }
  std::shared_ptr<const Identity> identity() const override { return link_.identity; }
  std::string link_details() const override;

  void start(MessageSink& sink) override;
  std::byte* reserve(std::size_t head_bytes) override {
    if (gate_.ended || closing_ || !mark_.is_ours()) [[unlikely]]
      return nullptr;
    return sender_.reserve(head_bytes);
  }
  std::byte* reserve_payload(std::size_t bytes) noexcept override {
    return gate_.ended || !mark_.is_ours() ? nullptr : sender_.reserve_payload(bytes);
  }
  Buffer loan(std::size_t bytes) override {
    return gate_.ended || closing_ || !mark_.is_ours() ? Buffer() : sender_.loan(bytes, link_.memory);
  }
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override;
  void copy_and_release(SendCompletion& owner) override { sender_.copy_and_release(owner); }
  void revoke_receive_buffer(const std::byte* memory) noexcept override { receiver_.revoke_receive_buffer(memory); }
  std::uint64_t committed() const noexcept override { return sender_.committed(); }
  std::uint64_t sent() const noexcept override { return sender_.sent(); }
  std::uint64_t arrived() const noexcept override { return receiver_.arrived(); }
  std::size_t backlog() const noexcept override { return sender_.backlog(); }
  void set_high_watermark(std::size_t bytes) noexcept override { watermark_.set(bytes, backlog()); }
  void pause() noexcept override { gate_.paused = true; }
  void resume() override;
  bool paused() const noexcept override { return gate_.paused; }
  void flush() override;
  void close() override;
  void abort() noexcept override;

 private:
  // Number of polls without a result after which a connection waits for the peer to ring.
  static constexpr unsigned idle_polls_max = 4096;
  static constexpr unsigned idle_polls_event_max = 16;  // The same with Wait::event.

  bool poll() override;
  bool arm() override;
  void on_ready(exec::Readiness readiness) override;
  void on_tick_end() override { flush(); }

  bool poll_once();
  bool serve_peer();
  bool has_work() noexcept;
  void unwatch_bell() noexcept;
  void set_hot(bool hot);
  void drained();
  void fail(const Error& reason);

  Loop& loop_;
  Link link_;
  const ProcessMark& mark_;  // In a child of the process, no function here does anything.
  Sleeper sleeper_;
  PeerWaker waker_;
  Gate gate_;
  ShmSender sender_;
  ShmReceiver receiver_;
  // The stream has ended. Messages that the peer sent before may still be in the ring.
  std::optional<Error> peer_gone_;
  BacklogWatermark watermark_;
  bool closing_ = false;
  bool bell_watched_ = false;
  bool hot_ = false;    // It is one of the loop's sources.
  bool armed_ = false;  // The peer rings when there is something to do.
  unsigned idle_polls_ = 0;
  Liveness liveness_;  // The last member, because it calls the others from its construction on.
};

}  // namespace hawser::transport::shm
