#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/baidu_std/client_tools.h"

// Servers that are played by hand, as those of bRPC.
namespace hawser::protocol::baidu_std {

inline constexpr std::int64_t server_id = 4242;

class PlayedServer {
 public:
  explicit PlayedServer(RawSocket socket) : socket_(std::move(socket)) {}

  // The request that opens a stream.
  struct Opening {
    std::int64_t correlation_id = 0;
    std::string method;
    StreamSettings settings;
  };
  Opening receive_opening() {
    const auto head = socket_.receive(FrameHeader::bytes);
    if (!head) return {};
    const FrameHeader header = **parse_header(*head, {});
    EXPECT_EQ(header.kind, BaiduStdFrameKind::rpc);
    const auto rest = socket_.receive(header.body_bytes);
    if (!rest) return {};
    const auto meta = parse_meta(Bytes(*rest).first(header.meta_bytes));
    EXPECT_TRUE(meta && meta->request && meta->stream);
    if (!meta || !meta->request || !meta->stream) return {};
    return {meta->correlation_id, std::string(meta->request->method), *meta->stream};
  }
  static Octets opening_reply(const Opening& opening, const StreamSettings& settings = {server_id, true, true},
                              std::string_view data = "opened", std::int32_t code = 0) {
    RpcMeta meta{.response = ResponseMeta{code, code == 0 ? "" : "as asked"}, .correlation_id = opening.correlation_id};
    if (code == 0) meta.stream = settings;
    const Octets reply = reply_frame(meta, data);
    return stream_frame({opening.settings.stream_id, code == 0 ? server_id : -1, StreamFrameType::data},
                        as_text(reply));
  }
  Opening accept(const StreamSettings& settings = {server_id, true, true}) {
    const Opening opening = receive_opening();
    send(opening_reply(opening, settings));
    return opening;
  }
  void send(const Octets& bytes) { socket_.send(bytes); }
  std::optional<Answer> receive() { return receive_answer(socket_); }
  // The next frame that is not a FEEDBACK.
  Answer next() {
    for (;;) {
      const std::optional<Answer> frame = receive();
      if (!frame) return {};
      if (frame->kind == BaiduStdFrameKind::stream && frame->frame.type == StreamFrameType::feedback) {
        consumed = frame->frame.consumed_size;
        continue;
      }
      return *frame;
    }
  }
  // Skips frames of streams until a call comes, and answers it.
  void answer_call() {
    while (const auto head = socket_.receive(FrameHeader::bytes)) {
      const FrameHeader header = **parse_header(*head, {});
      const auto rest = socket_.receive(header.body_bytes);
      if (!rest) return;
      if (header.kind != BaiduStdFrameKind::rpc) continue;
      const auto meta = parse_meta(Bytes(*rest).first(header.meta_bytes));
      return send(reply_frame({.response = ResponseMeta{}, .correlation_id = meta->correlation_id}, "answer"));
    }
  }
  void end_sending() { ::shutdown(socket_.fd(), SHUT_WR); }
  void wait_for_the_end() { static_cast<void>(socket_.closed_by_peer()); }

  std::int64_t consumed = 0;  // Reported by the client's last FEEDBACK.

 private:
  RawSocket socket_;
};

}  // namespace hawser::protocol::baidu_std
