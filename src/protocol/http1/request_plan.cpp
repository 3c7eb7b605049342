#include "protocol/http1/request_plan.h"

#include <utility>

#include "hawser/detail/loop_access.h"
#include "protocol/http1/field_values.h"
#include "protocol/http1/response.h"
#include "wire/metadata.h"

namespace hawser::http1 {
namespace {

// Fields that a method's handler receives as metadata.
bool is_metadata(std::string_view name) noexcept {
  return (name.size() > 2 && (name[0] == 'x' || name[0] == 'X') && name[1] == '-') ||
         is_any_of(name, {"authorization", "traceparent", "tracestate", "log-id"});
}

}  // namespace

Error call_error(ErrorCode code, std::string text) {
  return {code, ErrorScope::call, Initiator::local, 0, std::move(text)};
}

void CallFields::add(std::string_view name, std::string_view value, const Loop& loop) {
  const bool with_unit = name.size() == 12 && equal_without_case(name, "grpc-timeout");
  if (with_unit || equal_without_case(name, "timeout-ms")) {
    const std::optional<Duration> timeout = timeout_of(value, with_unit);
    if (timeout) deadline = loop.after(*timeout);
    return;
  }
  if (!is_metadata(name)) return;
  const std::size_t size = wire::metadata_entry_bytes(name, value);
  if (name.size() > wire::metadata_key_bytes_max || entries_ == wire::metadata_entries_max ||
      metadata.size() + size > wire::metadata_bytes_max) {
    return;
  }
  ++entries_;
  std::string key(name);
  for (char& c : key) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  metadata.resize(metadata.size() + size);
  wire::write_metadata_entry(metadata.data() + metadata.size() - size, key, value);
}

RequestPlan plan_request(const Served& served, const rpc::Dispatcher& dispatcher, const RequestHead& head) {
  using Kind = RequestPlan::Kind;
  const auto refused = [](ErrorCode code, std::string text, unsigned status = 0, std::string allow = {}) {
    return RequestPlan{.kind = Kind::refused,
                       .status = status != 0 ? status : status_of(code),
                       .error = call_error(code, std::move(text)),
                       .allow = std::move(allow)};
  };
  RouteTable::Found found = served.routes.find(head.method, head.path);
  if (found.handler != nullptr) return {.kind = Kind::route, .route = found.handler, .pattern = found.pattern};
  if (!found.allowed.empty()) {
    return refused(ErrorCode::invalid_argument, "this path does not serve the method " + std::string(head.method), 405,
                   std::move(found.allowed));
  }
  if (served.options.health && head.path == "/health") {
    if (head.method == "GET" || head.method == "HEAD") return {.kind = Kind::health};
    return refused(ErrorCode::invalid_argument, "/health serves GET only", 405, "GET, HEAD");
  }
  const rpc::Dispatcher::Method* const method = head.path.size() < 2 ? nullptr : dispatcher.find(head.path.substr(1));
  std::shared_ptr<const detail::JsonTranscoder> json = method == nullptr ? nullptr : method->json;
  if (json == nullptr && method != nullptr && served.options.functions) json = served.functions.find(*method);
  if (json == nullptr) {
    return refused(ErrorCode::unknown_method,
                   method == nullptr ? "nothing is served at this path"
                                     : "the method of this path has no description by which JSON could be converted");
  }
  if (head.method != "POST") return refused(ErrorCode::invalid_argument, "a method is called by POST", 405, "POST");
  if (method->streams_in || method->streams_out) {
    return refused(ErrorCode::invalid_argument, "a method with streams is not served over HTTP", 501);
  }
  const std::string_view type = media_type(head.field("content-type").value_or(json_type));
  if (equal_without_case(type, json_type)) return {.kind = Kind::json, .method = method, .json = std::move(json)};
  const bool proto = is_any_of(
      type, {"application/octet-stream", "application/proto", "application/x-protobuf", "application/protobuf"});
  if (proto && json->encoding() == "proto") return {.kind = Kind::bytes, .method = method};
  return refused(ErrorCode::invalid_argument, "send application/json or application/proto", 415);
}

Task<Result<Buffer>> offload_arguments(Loop& loop, const void* connection, std::stop_token token, Buffer json,
                                       std::shared_ptr<const detail::JsonTranscoder> transcoder) {
  auto work = [kept = std::move(json), converter = std::move(transcoder)] {
    return converter->arguments_from_json(kept.text());
  };
  auto converting = detail::LoopAccess::offload_for(loop, connection, std::move(token), std::move(work));
  Result<Result<Buffer>> converted = co_await std::move(converting);
  if (!converted) co_return std::unexpected(std::move(converted.error()));
  co_return std::move(*converted);
}

Task<Result<std::string>> offload_result(Loop& loop, const void* connection, std::stop_token token, Buffer body,
                                         std::vector<std::byte> payload,
                                         std::shared_ptr<const detail::JsonTranscoder> transcoder) {
  auto work = [kept = std::move(body), rest = std::move(payload), converter = std::move(transcoder)] {
    return converter->result_to_json(kept.bytes(), rest);
  };
  auto converting = detail::LoopAccess::offload_for(loop, connection, std::move(token), std::move(work));
  Result<Result<std::string>> converted = co_await std::move(converting);
  if (!converted) {
    // The handler has run, so no error may state that nothing was executed.
    co_return fail(ErrorCode::internal, "the result was not converted to JSON: " + converted.error().text);
  }
  co_return std::move(*converted);
}

}  // namespace hawser::http1
