#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/alive.h"
#include "hawser/timer.h"
#include "hawser/transport/transport.h"
#include "transport/common/backlog_watermark.h"
#include "transport/common/link_facts.h"
#include "transport/common/liveness.h"
#include "transport/ucx/connection/ucx_half_open.h"
#include "transport/ucx/protocol/receiver.h"
#include "transport/ucx/protocol/sender.h"

namespace hawser::transport {

// A connection whose messages travel as UCX active messages (docs/transports/ucx.md). It receives as soon as it exists
// and sends after open().
class UcxConnection final : public Connection, public LinkFactsSource, UcxTarget, ucx::UcxReceiverOwner, exec::TickEnd {
 public:
  // flush() waits at most so long until UCX has sent the data; the second limit applies during the wire-up.
  static constexpr Duration flush_max = std::chrono::milliseconds(20);
  static constexpr Duration first_flush_max = std::chrono::seconds(1);
  // After a failure of its endpoint, the connection waits so long for the end of the stream. If the stream ends, the
  // peer is gone, and the stream's error is reported.
  static constexpr Duration break_grace = std::chrono::milliseconds(50);

  static Result<std::unique_ptr<UcxConnection>> make(std::shared_ptr<UcxWorker> worker, const MessageLimits& limits);
  ~UcxConnection();

  std::uint64_t token() const noexcept { return link_.token; }
  // set_peer() and set_endpoint() must be called once each, set_peer() before open().
  void set_peer(const ucx::UcxPeer& peer) noexcept { link_.peer = peer; }
  void set_endpoint(std::unique_ptr<UcxEndpoint> endpoint);
  // The place ends with the first message of the client, or with the connection.
  void set_half_open(std::unique_ptr<UcxHalfOpen::Place> place) noexcept { half_open_ = std::move(place); }
  bool has_endpoint() const noexcept { return link_.endpoint != nullptr; }
  void open(std::unique_ptr<Stream> stream);
  std::size_t ahead_bytes() const noexcept { return receiver_.ahead_bytes(); }

  std::string_view transport() const noexcept override { return "ucx"; }
  Capabilities capabilities() const noexcept override;
  std::string peer() const override { return liveness_ ? liveness_->peer() : peer_name_; }
  std::string link_details() const override;
  void start(MessageSink& sink) override;
  std::byte* reserve(std::size_t head_bytes) override { return sender_.reserve(head_bytes); }
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override;
  void copy_and_release(SendCompletion& owner) override { sender_.copy_and_release(owner); }
  void revoke_receive_buffer(const std::byte* memory) noexcept override { receiver_.revoke_receive_buffer(memory); }
  std::uint64_t committed() const noexcept override { return sender_.committed(); }
  std::uint64_t sent() const noexcept override { return sender_.sent(); }
  std::uint64_t arrived() const noexcept override { return receiver_.arrived(); }
  std::size_t backlog() const noexcept override { return sender_.backlog(); }
  void set_high_watermark(std::size_t bytes) noexcept override { watermark_.set(bytes, backlog()); }
  void pause() noexcept override { receiver_.pause(); }
  void resume() override;
  bool paused() const noexcept override { return receiver_.paused(); }
  void flush() override;
  void close() override;
  void abort() noexcept override;

 private:
  UcxConnection(std::shared_ptr<UcxWorker> worker, const MessageLimits& limits);

  void on_tick_end() override;
  void drained();

  // UcxTarget.
  void arrived(const ActiveMessage& message) override { receiver_.arrived(message); }
  void connected(std::unique_ptr<UcxEndpoint> endpoint) override;
  void ended(UcxOperation& operation) override;
  void process() override;

  // The end.
  void on_protocol_violation(const std::string& how) override;
  void on_end(const Error& reason) override { fail(reason); }
  void on_failure(std::string_view what, ucs_status_t status) override;
  void stream_ended(Error reason);
  // Returns true if the end of the connection can wait until the sink resumes: the sink has paused the connection, and
  // nothing waits to be sent.
  bool held_back() const noexcept { return receiver_.paused() && backlog() == 0; }
  void fail(Error reason);
  void end_wire_up() noexcept;

  const std::shared_ptr<UcxWorker> worker_;
  Loop& loop_;
  const MessageLimits limits_;
  ucx::UcxLink link_;
  ucx::UcxSender sender_;
  ucx::UcxReceiver receiver_;
  std::shared_ptr<Liveness> liveness_;
  std::string peer_name_;
  std::unique_ptr<UcxHalfOpen::Place> half_open_;
  MessageSink* sink_ = nullptr;
  // Limits the wire-up; after a failure of the endpoint, limits the wait for the stream's end.
  MemberTimer<&UcxConnection::end_wire_up> wire_up_{*this};
  BacklogWatermark watermark_;
  bool ended_ = false;
  std::optional<Error> stream_end_;
  std::optional<Error> broken_;
  const Alive<UcxConnection> alive_{*this};
};

}  // namespace hawser::transport
