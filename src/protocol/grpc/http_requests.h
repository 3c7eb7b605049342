#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hawser/timer.h"
#include "protocol/grpc/grpc_stream.h"
#include "rpc/port/http_streams.h"

namespace hawser::protocol::grpc {

class Http2ServerSession;

// The requests on a server's connection that are not gRPC. The protocol that serves HTTP answers them, if it is
// enabled. A part of its session. Loop's thread only.
class HttpRequests final : rpc::HttpStreamHost {
 public:
  explicit HttpRequests(Http2ServerSession& session) noexcept;

  // The head of a request has arrived. PortHost::http is not null.
  void begin(GrpcStream& stream);
  // The request of the stream, or null if the stream has none that waits for its answer.
  rpc::HttpExchange* find(const GrpcStream& stream) const noexcept;
  // Returns the number of bytes that the client may send again at once.
  std::size_t on_body(const GrpcStream& stream, Bytes bytes);
  // False while the request does not wait for its client.
  bool receives(const GrpcStream& stream) const noexcept;
  // True while requests are being converted that are not active calls yet.
  bool working() const noexcept { return streams_ != nullptr && streams_->working(); }
  // The connection has room.
  void on_room() {
    if (streams_ != nullptr) streams_->on_room();
  }
  // A request that has been answered goes on: what follows is discarded for a while.
  void on_discarding() {
    if (!discards_.running()) start_discards();
  }
  // The connection has ended.
  void stop() noexcept;

 private:
  // ---- rpc::HttpStreamHost ----
  detail::ReplySink& connection() noexcept override;
  rpc::PortHost& port_host() noexcept override;
  detail::ReceiveAccount& receive_account() noexcept override;
  std::optional<Error> refusal(std::size_t beyond) const override;
  bool begins_later(std::uint32_t call) override;
  Error no_memory() override;
  void run_method(const detail::ServedMethod& method, const detail::IncomingRequest& request,
                  const rpc::BodyForm& form) override;
  void run_route(const detail::ServedMethod& name, detail::IncomingRequest request, const rpc::BodyForm& form,
                 Route& route) override;
  void count_answer(std::uint32_t call, std::size_t bytes, ErrorCode code) noexcept override;
  void count_failure(std::uint32_t call, ErrorCode code, const Error& error) noexcept override;
  void send_continue(std::uint32_t call) override;
  void return_window(std::uint32_t call, std::size_t bytes) override;
  void restart_pace() noexcept override;
  void send_head(std::uint32_t call, unsigned status, std::span<const rpc::HttpField> fields, bool end) override;
  void send_body(std::uint32_t call, Buffer head, std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void end_response(std::uint32_t call, bool whole) override;
  bool stream_has_room(std::uint32_t call, std::size_t bytes_max) const noexcept override;
  bool connection_has_room() const noexcept override;

  rpc::HttpExchange*& place_of(std::uint32_t call);
  void start_pace();
  void check_pace();
  void start_discards();
  void check_discards();

  Http2ServerSession& session_;
  std::unique_ptr<rpc::HttpStreams> streams_;  // Null until the first request.
  std::vector<rpc::HttpExchange*> by_slot_;    // Null: no request that has not been answered.
  std::vector<rpc::HttpField> fields_;         // Memory that is used again.
  // Checks how fast the client takes the responses. Runs while there are requests and write_timeout is not forever.
  MemberTimer<&HttpRequests::check_pace> pace_;
  // Runs while requests that have been answered have not ended.
  MemberTimer<&HttpRequests::check_discards> discards_;
};

}  // namespace hawser::protocol::grpc
