#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/brpc.h"
#include "hawser/hawser.h"
#include "protocol/baidu_std/compression.h"
#include "protocol/baidu_std/frame.h"
#include "protocol/baidu_std/rpc_meta.h"
#include "tests/at_rest.h"
#include "tests/background_client.h"
#include "tests/baidu_std/handlers.h"
#include "tests/raw_peer.h"

namespace hawser::protocol::baidu_std {

// ---- A client that speaks the protocol by hand ----

// A request of test.Raw/`method`.
struct Call {
  std::string_view method = "Echo";
  std::int64_t id = 1;
  std::string_view data = "hello";
  std::string_view attachment = {};
  RpcMeta meta = {};  // Other fields.
  Metadata fields = {};
};
inline Octets bytes_of(const Call& call) {
  RpcMeta meta = call.meta;
  if (!meta.request) meta.request.emplace();
  if (meta.request->service.empty()) meta.request->service = "test.Raw";
  meta.request->method = call.method;
  meta.correlation_id = call.id;
  if (meta.attachment_size == 0) meta.attachment_size = static_cast<std::int32_t>(call.attachment.size());
  const std::size_t meta_size = meta_bytes(meta, &call.fields);
  Octets bytes(FrameHeader::bytes + meta_size);
  write_header(bytes.data(), {BaiduStdFrameKind::rpc,
                              static_cast<std::uint32_t>(meta_size + call.data.size() + call.attachment.size()),
                              static_cast<std::uint32_t>(meta_size)});
  std::byte* const checksum = write_meta(bytes.data() + FrameHeader::bytes, meta, &call.fields);
  if (meta.checksum_type != 0) std::memcpy(checksum, call.meta.checksum_value.data(), checksum_bytes);
  return bytes + octets(call.data) + octets(call.attachment);
}
inline Octets stream_frame(const StreamFrameMeta& meta, std::string_view data = {}) {
  const std::size_t meta_size = stream_meta_bytes(meta);
  Octets bytes(FrameHeader::bytes + meta_size);
  write_header(bytes.data(), {BaiduStdFrameKind::stream, static_cast<std::uint32_t>(meta_size + data.size()),
                              static_cast<std::uint32_t>(meta_size)});
  write_stream_meta(bytes.data() + FrameHeader::bytes, meta);
  return bytes + octets(data);
}

// A reply, or a frame of a stream.
struct Answer {
  BaiduStdFrameKind kind = BaiduStdFrameKind::rpc;
  std::int64_t id = 0;
  std::int32_t error_code = 0;
  std::string error_text;
  std::string data;
  std::string attachment;
  std::int32_t compress_type = 0;
  std::int32_t content_type = 0;
  std::string checksum;
  std::optional<StreamSettings> stream;
  Metadata fields;
  StreamFrameMeta frame;  // The meta of a stream frame.
};
inline Answer parse_answer(const Octets& frame) {
  Answer answer;
  const FrameHeader header = **parse_header(frame, {});
  const Bytes meta = Bytes(frame).subspan(FrameHeader::bytes, header.meta_bytes);
  const Bytes data = Bytes(frame).subspan(FrameHeader::bytes + header.meta_bytes);
  answer.kind = header.kind;
  if (header.kind == BaiduStdFrameKind::stream) {
    answer.frame = parse_stream_meta(meta).value_or(StreamFrameMeta{});
    answer.data = as_text(data);
    return answer;
  }
  const Result<RpcMeta> parsed = parse_meta(meta);
  EXPECT_TRUE(parsed && parsed->response) << error_of(parsed);
  if (!parsed || !parsed->response) return answer;
  answer.id = parsed->correlation_id;
  answer.error_code = parsed->response->error_code;
  answer.error_text = parsed->response->error_text;
  const auto attachment = static_cast<std::size_t>(parsed->attachment_size);
  answer.data = as_text(data.first(data.size() - attachment));
  answer.attachment = as_text(data.last(attachment));
  answer.compress_type = parsed->compress_type;
  answer.content_type = parsed->content_type;
  answer.checksum = parsed->checksum_value;
  answer.stream = parsed->stream;
  read_user_fields(meta, [&](std::string_view key, std::string_view value) { answer.fields.emplace_back(key, value); });
  return answer;
}
inline std::optional<Answer> receive_answer(RawSocket& socket) {
  const auto head = socket.receive(FrameHeader::bytes);
  if (!head) return std::nullopt;
  const auto header = parse_header(*head, {});
  if (!header || !*header) {
    ADD_FAILURE() << "the server sent no frame";
    return std::nullopt;
  }
  const auto rest = socket.receive((**header).body_bytes);
  if (!rest) return std::nullopt;
  return parse_answer(*head + *rest);
}

inline constexpr std::size_t message_bytes_max = 2 << 20;
inline constexpr std::size_t calls_max = 16;

// A server of baidu_std and of its own protocol, and a well-behaved client of the latter, which must be served whatever
// a test does.
class BaiduStd : public ::testing::Test {
 protected:
  BaiduStd() : BaiduStd(BaiduStdOptions{}) {}
  // `prepare` is called before the server starts.
  explicit BaiduStd(BaiduStdOptions options, ServerOptions server_options = {},
                    const std::function<void(Server&)>& prepare = {}) {
    server_options.message_bytes_max = message_bytes_max;
    server_options.calls_per_connection_max = calls_max;
    server_options.receive_bytes_max = 8 * message_bytes_max;
    server_options.receive_share_bytes_max = 2 * message_bytes_max;
    server_options.receive_peer_bytes_max = 6 * message_bytes_max;
    server_options.send_backlog_bytes_max = 256 * 1024;
    server_options.loop.log = no_log();
    server = std::make_unique<Server>(server_options);
    server->register_handler<testing_tools::echo>();
    serve_method<echo_message>(*server, "test.Raw/Echo");
    using Native = detail::MethodFacts<native_text>;
    server->add_method(
        {.id = Native::id,
         .signature = Native::signature,
         .name = "test.Raw/Native",
         .handler = std::make_unique<detail::FunctionHandler<native_text, void>>(nullptr, HandlerOptions{})});
    serve_method<wait_message>(*server, "test.Raw/Wait");
    serve_method<later_message>(*server, "test.Raw/Later");
    serve_method<failing_message>(*server, "test.Raw/Fail");
    serve_method<stream_message>(*server, "test.Raw/Stream");
    serve_method<lazy_message>(*server, "test.Raw/Lazy");
    serve_method<pour_message>(*server, "test.Raw/Pour");
    server->enable(hawser::baidu_std(std::move(options)));
    if (prepare) prepare(*server);
    EXPECT_TRUE(server->start());
    good_client = std::make_unique<BackgroundClient>(server->address());
    EXPECT_TRUE(good_client->sees_calls(1));
  }
  ~BaiduStd() override {
    EXPECT_TRUE(good_client->sees_calls(10));
    expect_rest(*server, 1);
    good_client->stop();
    EXPECT_EQ(good_client->complaint(), "");
  }

  RawSocket connected() const { return RawSocket::connected_to(server->address()); }
  // Sends a request and returns its answer.
  static Answer ask(RawSocket& socket, const Call& call) {
    socket.send(bytes_of(call));
    const std::optional<Answer> answer = receive_answer(socket);
    EXPECT_TRUE(answer) << "no answer";
    return answer.value_or(Answer{});
  }
  void expect_closed(const Octets& bytes, const char* what) {
    const std::uint64_t before = server->counters().protocol_errors;
    RawSocket socket = connected();
    socket.send(bytes);
    EXPECT_TRUE(socket.closed_by_peer()) << what;
    EXPECT_TRUE(soon([&] { return server->counters().protocol_errors == before + 1; })) << what;
  }

  std::unique_ptr<Server> server;
  std::unique_ptr<BackgroundClient> good_client;
};

class BaiduStdCredentials : public BaiduStd {
 protected:
  BaiduStdCredentials()
      : BaiduStd(BaiduStdOptions{.verify = [](std::string_view credential, std::string_view peer) -> Result<void> {
          if (credential == "secret" && peer.starts_with("127.0.0.1")) return {};
          return fail(ErrorCode::invalid_argument, "wrong credential");
        }}) {}
};

}  // namespace hawser::protocol::baidu_std
