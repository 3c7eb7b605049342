#include "cli/demo/services.h"

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/try.h"
#include "hawser/codec.h"
#include "hawser/detail/json_transcoder.h"
#include "hawser/detail/served_method.h"

// A build without protobuf: example.EchoService alone, with the messages
//   message EchoRequest { optional string message = 1; }
//   message EchoResponse { optional string message = 1; }
namespace hawser::cli {
namespace {

constexpr char message_tag = 0x0a;  // Field 1, length-delimited.
constexpr std::string_view name = "example.EchoService/Echo";

Error malformed(std::string text) {
  return Error::of_call(Initiator::peer, ErrorCode::invalid_argument, std::move(text));
}

// Reads a varint of at most five bytes and removes it from `bytes`.
std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 35 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Returns the message of an EchoRequest; nothing if it has none.
Result<std::optional<std::string_view>> message_of(std::string_view bytes) {
  std::optional<std::string_view> message;
  while (!bytes.empty()) {
    const char tag = bytes.front();
    bytes.remove_prefix(1);
    const std::optional<std::uint64_t> size = tag == message_tag ? take_varint(bytes) : std::nullopt;
    if (!size || *size > bytes.size()) return fail(malformed("the bytes are not an example.EchoRequest"));
    message = bytes.substr(0, *size);
    bytes.remove_prefix(*size);
  }
  return message;
}

class EchoJson final : public detail::JsonTranscoder {
 public:
  Result<Buffer> arguments_from_json(std::string_view json) const override {
    if (json.empty()) return Buffer();
    const nlohmann::json value = nlohmann::json::parse(json, nullptr, false);
    if (!value.is_object()) return fail(malformed("the body is not a JSON object"));
    const auto found = value.find("message");
    if (found == value.end() || found->is_null()) return Buffer();
    if (!found->is_string()) return fail(malformed("\"message\" is not a string"));
    const auto& text = found->get_ref<const std::string&>();
    std::string bytes(1, message_tag);
    for (std::size_t rest = text.size();;) {
      bytes += static_cast<char>((rest & 0x7fU) | (rest >= 0x80 ? 0x80U : 0U));
      if ((rest >>= 7) == 0) break;
    }
    return Buffer::copy_of(bytes + text);
  }
  Result<std::string> result_to_json(Bytes body, Bytes payload) const override {
    std::string bytes(as_text(body));
    bytes += as_text(payload);
    TRY(const std::optional<std::string_view>& message, message_of(bytes));
    nlohmann::json value = nlohmann::json::object();
    if (message) value["message"] = std::string(*message);
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  std::string_view encoding() const noexcept override { return "proto"; }
};

class Echo final : public detail::Handler {
 public:
  void serve(const detail::IncomingRequest& request) override {
    const Result<std::optional<std::string_view>> message = message_of(as_text(request.body));
    if (!message) return request.sink.reply_error(request.call, message.error());
    codec::EncodedSize size;
    size.body = request.body.size();
    std::byte* const body = request.sink.begin_reply(request.call, size, {.attachment = request.attachment});
    if (body == nullptr) return;
    if (!request.body.empty()) std::memcpy(body, request.body.data(), request.body.size());
    const ConstBuffer attachment{request.attachment.data(), request.attachment.size()};
    request.sink.end_reply(std::span(&attachment, attachment.size == 0 ? 0 : 1), nullptr);
  }
};

}  // namespace

struct DemoServices::State {};

DemoServices::DemoServices() = default;
DemoServices::~DemoServices() = default;
bool DemoServices::available() noexcept { return false; }

void DemoServices::add_to(Server& server) {
  server.add_method({.id = codec::fnv1a32(name),
                     .signature = codec::fnv1a32(name),
                     .name = std::string(name),
                     .handler = std::make_unique<Echo>(),
                     .json = std::make_shared<EchoJson>()});
}

}  // namespace hawser::cli
