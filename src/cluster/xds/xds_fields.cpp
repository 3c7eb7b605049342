#include "cluster/xds/xds_fields.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "base/ascii_case.h"
#include "base/escaped_text.h"
#include "base/try.h"
#include "cluster/remote_duration.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t shown_resource_bytes_max = 128;

}  // namespace

using protocol::grpc::ProtoField;

std::unexpected<Error> refuse_resource(std::string text) {
  return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
}

std::string quoted_name(std::string_view name) {
  std::string shown = "'";
  append_escaped(shown, name, shown_resource_bytes_max);
  return shown + "'";
}

std::string lower_case(std::string_view text) { return in_lower_case(text); }

Result<void> read_fields(std::string_view message, const std::function<Result<void>(const ProtoField&)>& visit) {
  Result<void> outcome;
  const bool whole = protocol::grpc::visit_fields(message, [&](const ProtoField& field) {
    if (outcome) outcome = visit(field);
  });
  if (outcome && !whole) return refuse_resource("a message is malformed");
  return outcome;
}

Result<std::string_view> read_bytes(std::string_view message, unsigned number) {
  std::string_view bytes;
  TRY(read_fields(message, [&](const ProtoField& field) -> Result<void> {
    if (field.number == number) bytes = field.bytes;
    return {};
  }));
  return bytes;
}

Result<std::uint64_t> read_number(std::string_view message, unsigned number) {
  std::uint64_t value = 0;
  TRY(read_fields(message, [&](const ProtoField& field) -> Result<void> {
    if (field.number == number) value = field.value;
    return {};
  }));
  return value;
}

Result<Duration> read_duration(std::string_view message) {
  TRY(const std::uint64_t seconds, read_number(message, 1));
  TRY(const std::uint64_t nanoseconds, read_number(message, 2));
  const std::optional<Duration> read = remote_duration(seconds, nanoseconds);
  if (!read) return refuse_resource("a duration is negative or malformed");
  return *read;
}

Result<XdsAny> read_any(std::string_view message) {
  constexpr std::string_view prefix = "type.googleapis.com/";
  XdsAny any;
  TRY(read_fields(message, [&](const ProtoField& field) -> Result<void> {
    if (field.number == 1) any.type = field.bytes;
    if (field.number == 2) any.value = field.bytes;
    return {};
  }));
  if (any.type.starts_with(prefix)) any.type.remove_prefix(prefix.size());
  return any;
}

}  // namespace hawser::cluster
