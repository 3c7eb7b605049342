#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/error.h"
#include "hawser/time.h"
#include "protocol/grpc/proto_bytes.h"

// Readers of protobuf messages that a control plane has sent.
namespace hawser::cluster {

// The error of a resource that is malformed or demands what is not supported. The control plane receives the text.
std::unexpected<Error> refuse_resource(std::string text);

// A name of the control plane in an error: escaped, cut and within quotation marks.
std::string quoted_name(std::string_view name);

// Visits the fields of a message in order, up to the first failure. Fails if the message is malformed.
Result<void> read_fields(std::string_view message,
                         const std::function<Result<void>(const protocol::grpc::ProtoField&)>& visit);

// Sets `to`, or fails as `from` did.
template <class T, class U>
Result<void> assign(T& to, Result<U> from) {
  if (!from) return std::unexpected(std::move(from.error()));
  to = std::move(*from);
  return {};
}

// As names of domains and headers are compared.
std::string lower_case(std::string_view text);

// The value of one field, the last one; empty or 0 if it is absent.
Result<std::string_view> read_bytes(std::string_view message, unsigned number);
Result<std::uint64_t> read_number(std::string_view message, unsigned number);
// google.protobuf.UInt32Value.
inline Result<std::uint64_t> read_wrapped_number(std::string_view message) { return read_number(message, 1); }

// google.protobuf.Duration. One that is negative or malformed is refused; a longer one than remote_duration_max is cut.
Result<Duration> read_duration(std::string_view message);

// google.protobuf.Any.
struct XdsAny {
  std::string_view type;  // Without "type.googleapis.com/".
  std::string_view value;
};
Result<XdsAny> read_any(std::string_view message);

}  // namespace hawser::cluster
