#pragma once

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/brpc.h"
#include "hawser/detail/json_transcoder.h"
#include "hawser/hawser.h"
#include "tests/testing.h"

namespace hawser::protocol::baidu_std {

// Stands for a protobuf message: its encoding is the whole body.
struct RawMessage {
  std::string bytes;
};

}  // namespace hawser::protocol::baidu_std

namespace hawser::codec {

template <>
struct Codec<protocol::baidu_std::RawMessage> {
  static constexpr std::string_view signature = "raw";
  static constexpr std::size_t bytes_min = 0;
  static void size(Sizer& sizer, const protocol::baidu_std::RawMessage& value) { sizer.add(value.bytes.size()); }
  static void encode(Encoder& encoder, const protocol::baidu_std::RawMessage& value) {
    if (value.bytes.starts_with("throw")) throw std::runtime_error("the message cannot be encoded");
    encoder.write(value.bytes.data(), value.bytes.size());
  }
  static bool decode(Decoder& decoder, protocol::baidu_std::RawMessage& value) {
    const std::byte* data = nullptr;
    const std::size_t bytes = decoder.available();
    if (!decoder.take(bytes, data, "raw message")) return false;
    value.bytes.assign(reinterpret_cast<const char*>(data), bytes);
    return true;
  }
};

}  // namespace hawser::codec

namespace hawser::protocol::baidu_std {

using namespace testing_tools;

// Long conversions on a loop's thread and on others, and whether conversions of JSON that begins with "[gate" wait.
inline std::atomic<int> conversions_on_a_loop{0};
inline std::atomic<int> conversions_elsewhere{0};
inline std::atomic<bool> gate_closed{false};
inline std::atomic<int> at_the_gate{0};
// Conversions of arguments, and the failures of them that an interceptor has seen.
inline std::atomic<int> conversions{0};
inline std::atomic<int> wrong_json_seen{0};

// "JSON" of a message is its bytes in brackets.
class RawTranscoder final : public detail::JsonTranscoder {
 public:
  Result<Buffer> arguments_from_json(std::string_view json) const override {
    count(json.size());
    conversions.fetch_add(1);
    if (json.starts_with("[gate")) {
      at_the_gate.fetch_add(1);
      gate_closed.wait(true);
    }
    if (json.size() < 2 || json.front() != '[') return fail(ErrorCode::invalid_argument, "no bracket");
    return Buffer::copy_of(json.substr(1, json.size() - 2));
  }
  Result<std::string> result_to_json(Bytes body, Bytes payload) const override {
    count(body.size() + payload.size());
    return "[" + std::string(as_text(body)) + std::string(as_text(payload)) + "]";
  }
  std::string_view encoding() const noexcept override { return "proto"; }

 private:
  static void count(std::size_t bytes) {
    if (bytes > 10'000) (Loop::current() != nullptr ? conversions_on_a_loop : conversions_elsewhere).fetch_add(1);
  }
};

// ---- Handlers ----

// Answers the message and the attachment, and the metadata "echo" with all that it received.
inline RawMessage echo_message(Context& context, const RawMessage& request) {
  if (!context.attachment().empty()) context.set_attachment(Buffer::copy_of(context.attachment()));
  std::string all;
  for (const auto& [key, value] : context.metadata().copy()) all += key + "=" + value + ";";
  if (!all.empty()) context.add_metadata("echo", all);
  return request;
}
// Waits until the call is cancelled or its deadline passes.
inline Task<Result<RawMessage>> wait_message(Context& context, const RawMessage&) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  co_return fail(context.deadline() ? ErrorCode::deadline_exceeded : ErrorCode::cancelled, "stopped");
}
inline Task<RawMessage> later_message(Context& context, RawMessage request) {
  for (int i = 0; i < 3; ++i) {
    co_await context.loop().sleep(1ms);
  }
  co_return request;
}
inline Result<RawMessage> failing_message(const RawMessage& request) {
  return std::unexpected(Error::application(static_cast<int>(request.bytes.size()), "as asked"));
}
inline std::string native_text(std::string text) { return text; }
// Answers each item with itself, and "end" at the end.
inline Task<Result<RawMessage>> stream_message(Context&, RawMessage request, Reader<RawMessage> in,
                                               Writer<RawMessage> out) {
  if (request.bytes == "refuse") co_return fail(ErrorCode::invalid_argument, "refused at once");
  for (;;) {
    auto item = co_await in.next();
    if (!item) co_return std::unexpected(item.error());
    if (!*item) break;
    if ((*item)->bytes == "fail") co_return fail(ErrorCode::invalid_argument, "failed");
    if ((*item)->bytes == "stop") co_return RawMessage{"end"};
    const RawMessage answer = **item;
    const Result<void> written = co_await out.write(answer);
    if (!written) co_return std::unexpected(written.error());
  }
  co_return RawMessage{"end"};
}
// Reads nothing until the call is cancelled.
inline Task<Result<RawMessage>> lazy_message(Context& context, const RawMessage&, Reader<RawMessage>) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  co_return RawMessage{};
}
// Writes items of 1000 bytes without an end. Adds their number to the counter `poured`.
inline std::atomic<std::uint64_t> poured{0};
inline Task<Result<RawMessage>> pour_message(Context&, const RawMessage&, Writer<RawMessage> out) {
  const RawMessage item{std::string(1000, 'p')};
  for (;;) {
    const Result<void> written = co_await out.write(item);
    if (!written) co_return std::unexpected(written.error());
    poured.fetch_add(1);
  }
}

}  // namespace hawser::protocol::baidu_std

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::protocol::baidu_std::echo_message> =
    "test.Raw/Echo";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::protocol::baidu_std::wait_message> =
    "test.Raw/Wait";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::protocol::baidu_std::failing_message> =
    "test.Raw/Fail";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::protocol::baidu_std::stream_message> =
    "test.Raw/Stream";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::protocol::baidu_std::native_text> =
    "test.Raw/Native";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::protocol::baidu_std::lazy_message> =
    "test.Raw/Lazy";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::protocol::baidu_std::pour_message> =
    "test.Raw/Pour";

namespace hawser::protocol::baidu_std {

template <auto F>
void serve_method(Server& server, std::string name) {
  using Facts = detail::MethodFacts<F>;
  server.add_method({.id = Facts::id,
                     .signature = Facts::signature,
                     .name = std::move(name),
                     .handler = std::make_unique<detail::FunctionHandler<F, void>>(nullptr, HandlerOptions{}),
                     .streams_in = !std::is_same_v<typename Facts::incoming, detail::NoStream>,
                     .streams_out = !std::is_same_v<typename Facts::outgoing, detail::NoStream>,
                     .json = std::make_shared<RawTranscoder>()});
}

}  // namespace hawser::protocol::baidu_std
