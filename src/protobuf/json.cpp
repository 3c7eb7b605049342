#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <climits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/protobuf_service.h"
#include "json/reader.h"
#include "protobuf/plain_json.h"

namespace hawser::pb {

namespace {

using google::protobuf::Descriptor;
namespace util = google::protobuf::util;

constexpr const char* url_prefix = "type.googleapis.com";

std::string url_of(const Descriptor* type) {
  return type == nullptr ? std::string() : std::string(url_prefix).append("/").append(type->full_name());
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// A megabyte of brackets takes libprotobuf minutes if a ListValue is expected.
constexpr std::size_t arguments_depth_max = 100;
// Longer arguments are refused before they are checked, which takes memory for each name, and before libprotobuf sees
// them. It converts 2 to 7 MB/s.
constexpr std::size_t arguments_bytes_max = std::size_t{4} << 20;

class MessageTranscoder final : public detail::JsonTranscoder {
 public:
  MessageTranscoder(const Descriptor* request, const Descriptor* reply)
      : request_(request),
        reply_(reply),
        plain_request_(request),
        plain_reply_(reply),
        request_url_(url_of(request)),
        reply_url_(url_of(reply)) {
    // The types of both messages, and those that an Any within them names, are in the pool of the first.
    const Descriptor* const any = request != nullptr ? request : reply;
    if (any != nullptr) {
      types_.reset(util::NewTypeResolverForDescriptorPool(url_prefix, any->file()->pool()));
    }
  }

  Result<Buffer> arguments_from_json(std::string_view json) const override {
    if (is_blank(json)) return Buffer();
    if (request_ == nullptr) {
      if (json == "{}") return Buffer();
      return fail(ErrorCode::invalid_argument, "this method takes a stream of messages and no JSON object beside it");
    }
    if (json.size() > INT_MAX) return refused(request_, "the text is longer than 2 GiB");
    std::string bytes;
    if (plain_request_.to_bytes(json, bytes)) return Buffer::copy_of(as_bytes(std::string_view(bytes)));
    if (json.size() > arguments_bytes_max) {
      return refused(request_,
                     "it has " + std::to_string(json.size()) +
                         " bytes; beyond 4 MiB, only objects of ASCII text, integers, booleans, names of enumerations, "
                         "bytes and such objects are converted. Send a protobuf message",
                     ErrorCode::limit_exceeded);
    }
    // libprotobuf would accept more than JSON, such as names without quotation marks, and names that occur twice.
    if (const auto valid = json::check(json, {.depth_max = arguments_depth_max}); !valid) {
      return refused(request_, valid.error().text);
    }
    bytes.clear();
    const auto status = util::JsonToBinaryString(types_.get(), request_url_, {json.data(), json.size()}, &bytes, {});
    if (!status.ok()) return refused(request_, text_of(status));
    return Buffer::copy_of(as_bytes(std::string_view(bytes)));
  }

  Result<std::string> result_to_json(Bytes body, Bytes payload) const override {
    if (!payload.empty()) return fail(ErrorCode::internal, "the reply has a payload beside its message");
    if (reply_ == nullptr) return std::string("{}");
    if (body.size() > INT_MAX) return refused(reply_, "the message is longer than 2 GiB");
    std::string json;
    if (plain_reply_.to_json(body, json)) return json;
    json.clear();
    const std::string bytes(reinterpret_cast<const char*>(body.data()), body.size());
    const auto status = util::BinaryToJsonString(types_.get(), reply_url_, bytes, &json, {});
    if (!status.ok()) return refused(reply_, text_of(status), ErrorCode::internal);
    return json;
  }

  std::string_view encoding() const noexcept override { return "proto"; }

 private:
  // A util::Status, or from libprotobuf 22 on an absl::Status.
  static std::string text_of(const auto& status) {
    return std::string(status.message().data(), status.message().size());
  }
  static std::unexpected<Error> refused(const Descriptor* type, std::string_view why,
                                        ErrorCode code = ErrorCode::invalid_argument) {
    return fail(code, "JSON of " + std::string(type->full_name()) + ": " + std::string(why));
  }

  const Descriptor* request_;
  const Descriptor* reply_;
  const PlainJson plain_request_;
  const PlainJson plain_reply_;
  const std::string request_url_;
  const std::string reply_url_;
  std::unique_ptr<util::TypeResolver> types_;
};

}  // namespace

std::shared_ptr<const detail::JsonTranscoder> json_transcoder(const Descriptor* request, const Descriptor* reply) {
  return std::make_shared<MessageTranscoder>(request, reply);
}

}  // namespace hawser::pb
