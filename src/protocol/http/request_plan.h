#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/detail/json_transcoder.h"
#include "hawser/http.h"
#include "protocol/http/json/function_json.h"
#include "protocol/http/request_parser.h"
#include "protocol/http/routes.h"
#include "rpc/port/body_form.h"
#include "rpc/port/port_host.h"
#include "rpc/session/work_charge.h"

namespace hawser::protocol::http {

inline constexpr std::string_view json_type = "application/json";

// The routes, functions and options of a server. Outlives its sessions.
struct Served {
  const HttpOptions& options;
  const RouteTable& routes;
  FunctionJsons& functions;
  std::span<const rpc::Dispatcher::Method> route_names;  // RouteTable::names(), as the server counts them.
  // The name of a route, with its counters.
  const rpc::Dispatcher::Method& name_of(const Route& route) const noexcept {
    return route_names[route.number + (route.reserved ? routes.names().counted.size() : 0)];
  }
};

// The way in which a request is answered.
struct RequestPlan {
  enum class Kind : std::uint8_t { refused, health, options, bytes, json, route };
  Kind kind = Kind::refused;
  const rpc::Dispatcher::Method* method = nullptr;
  std::shared_ptr<const detail::JsonTranscoder> json = {};  // The JSON of `method`.
  const Route* route = nullptr;                             // `method` is its name.
  std::string_view pattern = {};                            // The route's path, if it has parameters.
  unsigned status = 0;                                      // Status of a refused request, and its error.
  Error error = {};
  std::string allow = {};
  std::string service = {};  // Whose health is asked for.
  bool gunzip = false;       // The body is compressed with gzip.

  // The number of calls beyond ServerOptions::calls_max beside which the request is still served.
  std::size_t calls_beyond() const noexcept { return route != nullptr && route->reserved ? operator_calls_reserve : 0; }
  // True if it is answered without a handler: GET /health, or OPTIONS * (RFC 9110, 9.3.7), which only asks whether the
  // server answers.
  bool is_fixed() const noexcept { return kind == Kind::health || kind == Kind::options; }
  // True if the handler reads the body in parts.
  bool reads_parts() const noexcept { return route != nullptr && route->body_handler; }
};
// The answer to a request that is_fixed(). A literal.
struct FixedAnswer {
  unsigned status = 200;
  std::string_view text = {};
};
FixedAnswer fixed_answer(const rpc::PortHost& host, const RequestPlan& plan);
RequestPlan plan_request(const Served& served, const rpc::Dispatcher& dispatcher, const RequestHead& head);
// How a whole body becomes what the handler receives. Nothing if it states a length beyond `bytes_max`.
std::optional<rpc::BodyForm> form_of(const RequestPlan& plan, Bytes body, std::size_t bytes_max);
// The errors of status 413: the body that was sent, or its decompressed form, is too long.
Error too_long_body(std::uint64_t bytes, std::size_t bytes_max);
Error unpacked_too_long(std::size_t bytes_max);

// The fields of a request that concern its call.
class CallFields {
 public:
  // Reads a field: metadata or the deadline, or neither.
  void add(std::string_view name, std::string_view value, const Loop& loop);
  void clear() noexcept {
    metadata.clear();
    entries_ = 0;
    deadline.reset();
    accepts_gzip = false;
  }

  // Encoded as wire/metadata.h describes. A field that was sent several times is one entry, if it is a list.
  std::vector<std::byte> metadata;
  std::optional<Time> deadline;
  bool accepts_gzip = false;  // The client accepts a compressed response.

 private:
  // Adds a value to the entry of that key. False if there is none, or if it is not a list.
  bool join(std::string_view key, std::string_view value);

  std::size_t entries_ = 0;
};

Error call_error(ErrorCode code, std::string text);
// Why a result of that size with that attachment is not the body of a response. Nothing if it is.
std::optional<Error> unsendable_result(const codec::EncodedSize& size, std::size_t attachment_bytes);
// Why a handler must not return that status. Nothing if it may.
std::optional<Error> unsendable_status(int status);

// JSON of a result, perhaps compressed.
struct JsonText {
  std::string text;
  bool gzip = false;
};
// Compresses the text if it has at least `bytes_min` bytes.
Result<JsonText> pack_json(Result<std::string> text, std::size_t bytes_min);
// `bytes_min` for a request with these fields.
std::size_t gzip_bytes_min(const HttpOptions& options, const CallFields& fields) noexcept;

// Converts a result to JSON on a thread of the offload pool. The token ends the wait. `connection` stands for the
// connection among those that share the pool. `used` is kept as long as a thread works on it.
Task<Result<JsonText>> offload_result(Loop& loop, const void* connection, std::stop_token token, Buffer body,
                                      std::vector<std::byte> payload,
                                      std::shared_ptr<const detail::JsonTranscoder> transcoder, std::size_t bytes_min,
                                      rpc::WorkCharge::Use used);

}  // namespace hawser::protocol::http
