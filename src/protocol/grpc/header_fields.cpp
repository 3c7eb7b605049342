#include "protocol/grpc/header_fields.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/ascii_case.h"
#include "base/decimal_text.h"
#include "protocol/grpc/header_values.h"
#include "protocol/grpc/status.h"
#include "wire/metadata.h"

namespace hawser::protocol::grpc {
namespace {

// Cost of a field in addition to its name and value: RFC 9113, section 6.5.2.
constexpr std::size_t field_overhead_bytes = 32;

bool is_grpc_content(std::string_view value) noexcept {
  constexpr std::string_view type = "application/grpc";
  if (!equal_without_case(value.substr(0, type.size()), type)) return false;
  constexpr std::string_view ends = "+; \t";
  return value.size() == type.size() || ends.contains(value[type.size()]);
}

std::string_view without_spaces_around(std::string_view text) noexcept {
  constexpr std::string_view spaces = " \t";
  const std::size_t begin = std::min(text.find_first_not_of(spaces), text.size());
  const std::size_t end = text.find_last_not_of(spaces) + 1;  // 0 if there are only spaces.
  return text.substr(begin, std::max(begin, end) - begin);
}

int parse_http_status(std::string_view text) noexcept {
  if (text.size() != 3) return 0;
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return 0;
    number = number * 10 + (c - '0');
  }
  return number;
}

}  // namespace

std::size_t HeaderFields::held_bytes() const noexcept {
  return path.capacity() + grpc_message.capacity() + metadata.capacity() + method.capacity() + authority.capacity() +
         plain.capacity() + plain_sizes.capacity() * sizeof plain_sizes[0];
}

void HeaderFields::release_text() noexcept {
  // Assignments would keep the memory.
  for (std::string* const text : {&path, &grpc_message, &method, &authority, &plain}) std::string().swap(*text);
  std::vector<std::byte>().swap(metadata);
  std::vector<std::pair<std::uint32_t, std::uint32_t>>().swap(plain_sizes);
  metadata_entries = 0;
}

void HeaderFields::refuse_memory() noexcept {
  release_text();
  no_memory = true;
}

void HeaderFields::clear() noexcept {
  if (held_bytes() > free_bytes_max) release_text();
  path.clear();
  post = grpc_content = bad_timeout = bad_metadata = too_many = too_large = no_memory = false;
  timeout.reset();
  encoding = Encoding::identity;
  accepted = {};
  http_status = 0;
  grpc_status = no_status;
  grpc_message.clear();
  metadata.clear();
  metadata_entries = 0;
  list_bytes = 0;
  method.clear();
  authority.clear();
  plain.clear();
  plain_sizes.clear();
}

std::optional<Error> HeaderFields::fault(std::size_t list_bytes_max) const {
  const auto refusal = [](ErrorCode code, std::string text) {
    return Error::of_call(Initiator::peer, code, std::move(text));
  };
  if (too_large) {
    return refusal(ErrorCode::limit_exceeded, "the request's metadata exceeds the limit of " +
                                                  count_text(list_bytes_max, "byte") + " (metadata_bytes_max)");
  }
  if (bad_timeout) return refusal(ErrorCode::internal, "grpc-timeout is malformed");
  if (too_many) {
    return refusal(ErrorCode::limit_exceeded,
                   "the request's metadata exceeds a fixed limit: " + std::to_string(wire::metadata_entries_max) +
                       " pairs, " + std::to_string(wire::metadata_key_bytes_max) + " bytes in a name, and " +
                       std::to_string(wire::metadata_bytes_max) + " bytes in total: send less");
  }
  if (bad_metadata) {
    return refusal(ErrorCode::internal, "the metadata has a -bin value that is not valid base64");
  }
  return std::nullopt;
}

void HeaderFields::add(std::string_view name, std::string_view value, std::size_t list_bytes_max) {
  list_bytes += name.size() + value.size() + field_overhead_bytes;
  if (list_bytes > list_bytes_max) too_large = true;
  if (too_large) {
    // The answer to the request depends on these, which may come behind a long path.
    if (name == "content-type") grpc_content = is_grpc_content(value);
    if (name == ":method") post = value == "POST";
    return;
  }
  if (name.starts_with(':')) {
    if (name == ":path") {
      path = value;
    } else if (name == ":method") {
      post = value == "POST";
      if (keep_plain) method = value;
    } else if (name == ":status") {
      http_status = parse_http_status(value);
    } else if (name == ":authority" && keep_plain) {
      authority = value;
    }
    return;
  }
  if (keep_plain && !grpc_content) {
    plain_sizes.emplace_back(static_cast<std::uint32_t>(name.size()), static_cast<std::uint32_t>(value.size()));
    plain.append(name).append(value);
  }
  if (name == "content-type") {
    grpc_content = is_grpc_content(value);
  } else if (name == "grpc-timeout") {
    timeout = parse_timeout(value);
    bad_timeout = bad_timeout || !timeout;
  } else if (name == "grpc-encoding") {
    encoding = parse_encoding(value);
  } else if (name == "grpc-accept-encoding") {
    accepted = Encodings::parse(value);
  } else if (name == "grpc-status") {
    grpc_status = parse_status(value);
  } else if (name == "grpc-message") {
    grpc_message = percent_decode(value);
  } else if (!is_reserved_name(name)) {
    add_metadata(name, value);
  }
}

void HeaderFields::add_metadata(std::string_view name, std::string_view value) {
  if (!is_binary_name(name)) return append(name, value);
  // Values that were joined with ',' are separate fields; a proxy may add spaces (RFC 9110, section 5.3). A long list
  // costs its sender one byte if HPACK refers to it, so that nothing is decoded behind the first error.
  while (!bad_metadata && !too_many) {
    const std::size_t comma = value.find(',');
    std::string bytes;
    if (!base64_decode(without_spaces_around(value.substr(0, comma)), bytes)) {
      bad_metadata = true;
      return;
    }
    append(name, bytes);
    if (comma == std::string_view::npos) return;
    value.remove_prefix(comma + 1);
  }
}

void HeaderFields::append(std::string_view name, std::string_view value) {
  const std::size_t bytes = wire::metadata_entry_bytes(name, value);
  if (metadata_entries == wire::metadata_entries_max || name.size() > wire::metadata_key_bytes_max ||
      metadata.size() + bytes > wire::metadata_bytes_max) {
    too_many = true;
    return;
  }
  ++metadata_entries;
  const std::size_t begin = metadata.size();
  metadata.resize(begin + bytes);
  wire::write_metadata_entry(metadata.data() + begin, name, value);
}

}  // namespace hawser::protocol::grpc
