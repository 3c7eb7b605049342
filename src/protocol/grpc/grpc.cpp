#include "hawser/grpc.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/detail/context_access.h"
#include "protocol/grpc/header_values.h"
#include "protocol/grpc/option_bounds.h"
#include "protocol/grpc/server_session.h"
#include "protocol/http2/error_codes.h"
#include "protocol/http2/refusal.h"
#include "rpc/port/port_protocol.h"
#include "rpc/server/live_options.h"

namespace hawser {
namespace {

// The first line of the connection preface of HTTP/2, which is enough to distinguish it from other protocols.
constexpr std::string_view preface_line = "PRI * HTTP/2.0\r\n";

class GrpcProtocol final : public rpc::PortProtocol {
 public:
  explicit GrpcProtocol(GrpcOptions options) : options_(std::move(options)) {}
  std::string_view name() const noexcept override { return "grpc"; }
  std::string_view alpn() const noexcept override { return "h2"; }
  Match match(Bytes first) const noexcept override {
    const std::string_view text = as_text(first);
    if (text.starts_with(preface_line)) return Match::yes;
    return preface_line.starts_with(text) ? Match::more : Match::no;
  }
  std::unique_ptr<rpc::PortSession> open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                         Bytes first) const override {
    return std::make_unique<protocol::grpc::Http2ServerSession>(host, std::move(stream), first, options_);
  }
  std::string refusal(const Error& why) const override {
    namespace http2 = protocol::http2;
    return http2::refusal_frames(why.code == ErrorCode::overloaded    ? http2::enhance_your_calm
                                 : why.code == ErrorCode::unavailable ? http2::no_error
                                                                      : http2::inadequate_security,
                                 why.text);
  }

 private:
  const GrpcOptions options_;
};

void check_time(std::string_view name, Duration value, Duration min, std::string_view wanted) {
  if (value >= min) return;
  throw std::invalid_argument("hawser: GrpcOptions::" + std::string(name) + " is " + rpc::option_text(value) +
                              ", and must be " + std::string(wanted) + "; `forever` removes the limit");
}

protocol::grpc::Http2ServerSession* session_of(Context& context) noexcept {
  return dynamic_cast<protocol::grpc::Http2ServerSession*>(&detail::ContextAccess::reply_sink(context).origin());
}

bool add_metadata(Context& context, bool initial, std::string name, std::string value) {
  protocol::grpc::Http2ServerSession* const session = session_of(context);
  return session != nullptr &&
         session->add_metadata(detail::ContextAccess::call(context), initial, std::move(name), std::move(value));
}

}  // namespace

ProtocolSpec grpc(GrpcOptions options) {
  using protocol::grpc::check_bounds;
  constexpr std::uint64_t frames_max = 1'000'000'000;
  check_bounds("GrpcOptions", {{"message_bytes_max", options.message_bytes_max, 1, UINT32_MAX},
                               {"metadata_bytes_max", options.metadata_bytes_max, 1024, 65'535},
                               {"calls_max", options.calls_max, 1, 65'535},
                               {"stream_window_bytes", options.stream_window_bytes, 65'535, INT32_MAX},
                               {"connection_window_bytes", options.connection_window_bytes, 65'535, INT32_MAX},
                               {"idle_frames_max", options.idle_frames_max, 100, frames_max},
                               {"idle_frames_per_second", options.idle_frames_per_second, 1, frames_max}});
  check_time("connection_age_max", options.connection_age_max, Duration(1), "positive");
  check_time("connection_age_grace", options.connection_age_grace, Duration(1), "positive");
  check_time("write_timeout", options.write_timeout, std::chrono::milliseconds(1), "at least 1 ms");
  return ProtocolSpec(std::make_shared<GrpcProtocol>(std::move(options)));
}

bool add_grpc_initial_metadata(Context& context, std::string name, std::string value) {
  return add_metadata(context, true, std::move(name), std::move(value));
}
bool add_grpc_trailing_metadata(Context& context, std::string name, std::string value) {
  return add_metadata(context, false, std::move(name), std::move(value));
}

bool set_grpc_status_details(Context& context, std::string details) {
  return add_metadata(context, false, std::string(protocol::grpc::status_details_name), std::move(details));
}
bool set_grpc_retry_pushback(Context& context, Duration pause) {
  const auto ms = std::min<std::int64_t>(std::chrono::floor<std::chrono::milliseconds>(pause).count(), INT32_MAX);
  return add_metadata(context, false, std::string(protocol::grpc::retry_pushback_name),
                      std::to_string(std::max<std::int64_t>(ms, -1)));
}

bool set_grpc_compression(Context& context, GrpcCompression compression) {
  protocol::grpc::Http2ServerSession* const session = session_of(context);
  if (session == nullptr) return false;
  return session->choose_compression(detail::ContextAccess::call(context), protocol::grpc::encoding_of(compression));
}

// A core outlives its session only once it has ended.
bool detail::choose_grpc_compression(StreamCore* core, GrpcCompression compression) {
  if (core == nullptr || core->ended()) return false;
  auto* const session = dynamic_cast<protocol::grpc::CompressionChoice*>(&core->channel());
  return session != nullptr && session->choose_compression(core->call(), protocol::grpc::encoding_of(compression));
}

bool is_grpc_request_compressed(Context& context) {
  const protocol::grpc::Http2ServerSession* const session = session_of(context);
  return session != nullptr && session->request_compressed(detail::ContextAccess::call(context));
}

}  // namespace hawser
