#pragma once

#include <memory>

#include "pipe/standstill.h"
#include "rpc/port/port_session.h"
#include "rpc/server/placed_payloads.h"
#include "rpc/session/session.h"

namespace hawser::rpc {

// The server's end of a connection of the library's own protocol.
class ServerSession final : public Session, public PortSession {
 public:
  // `identity` is null if the peer has proved nothing.
  ServerSession(PortHost& host, std::unique_ptr<transport::Connection> connection, const SessionSettings& settings,
                std::shared_ptr<const Identity> identity);
  ~ServerSession() override;

  // PortSession
  void go_away() override;
  bool leave() override;
  unsigned silent_checks() noexcept override;
  void end_if_slow(std::uint64_t bytes) override;
  void abort(const Error& why) override { end_session(why); }
  void options_changed() override {
    change_settings(host().options.send_backlog_bytes_max, host().options.ping_interval);
  }
  void describe(ConnectionReport& report) const override;

  // detail::ReplySink
  std::string_view protocol() const noexcept override { return "hawser"; }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                         const detail::ReplyExtras& extras) override;
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void reply_error(std::uint32_t call, const Error& error) override;
  void refuse_unkept(std::uint32_t call) override;
  void fail_connection() noexcept override;
  void copy_and_release(SendCompletion& owner) override { copy_or_end(owner); }
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t call) override;
  transport::OneSidedMemory* remote_memory() noexcept override {
    return closed() ? nullptr : connection().remote_memory();
  }
  detail::MemoryFrames* memory_frames() override { return open_memory(); }

 private:
  void on_frame(const wire::Frame& frame, const transport::Message& message) override;
  transport::ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override;
  void on_end(const Error& reason, std::uint64_t sent) override;
  void on_unkept_item(std::uint32_t call, const Error& why) override;

  // `placed` is null if no memory was selected for the payload while it arrived.
  void on_request(const wire::RequestFrame& header, const wire::Frame& frame, const transport::Message& message,
                  PlacedPayloads::Placed* placed);
  void on_placed_request(const wire::RequestFrame& header, const wire::Frame& frame, const transport::Message& message);
  IncomingPayload describe(const wire::Frame& frame, std::size_t payload_bytes,
                           std::size_t attachment_bytes) const noexcept;
  void serve_placed(const Dispatcher::Method& method, detail::IncomingRequest& request, const wire::Frame& frame,
                    const transport::Message& message, PlacedPayloads::Placed* placed);
  template <class StreamFrame>
  void on_stream(const StreamFrame& part, const wire::Frame& frame, const transport::Message& message);
  void refuse_placed(std::uint32_t call, const Dispatcher::Method& method, PlacedPayloads::Placed& placed);
  void refuse(std::uint32_t call, ErrorCode code, std::string text);
  void refuse(std::uint32_t call, const Error& why);
  void after_reply();
  void on_start() override {
    log_opened(connection().transport());
    start_session();
  }
  void check_idle() override;

  PlacedPayloads placed_;
  const bool connection_charges_;  // If false, this object charges payloads when it selects their receive buffer.
  bool going_away_ = false;
  bool peer_understood_ = false;  // The client has answered our GOAWAY: no request follows.
  pipe::Standstill silence_;      // For silent_checks(): of the bytes of both directions.
};

}  // namespace hawser::rpc
