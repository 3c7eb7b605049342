#include "cluster/etcd/endpoint_record.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "json/reader.h"
#include "json/writer.h"

namespace hawser::cluster {
namespace {

using json::JsonReader;
using json::Token;
using json::TokenKind;

constexpr json::Limits record_limits{.depth_max = 16, .values_max = 1024};

std::string decoded(const Token& token) {
  std::string text;
  json::decode(token, text);
  return text;
}

// A number that is not a whole one in the range becomes one that no endpoint may have.
std::uint32_t whole_number(std::string_view text, std::uint32_t wrong) {
  std::uint32_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && end == text.data() + text.size() ? number : wrong;
}

void set_member(Endpoint& endpoint, std::string name, std::string value) {
  if (name == "weight") {
    endpoint.weight = whole_number(value, 0);
  } else if (name == "priority") {
    endpoint.priority = whole_number(value, EndpointLimits::priority_max + 1);
  } else if (name == "zone") {
    endpoint.zone = std::move(value);
  } else if (endpoint.tags.size() <= EndpointLimits::tags_max) {
    endpoint.tags.emplace_back(std::move(name), std::move(value));
  }
}

void cut_text(std::string& text, std::size_t bytes_max) {
  if (text.size() > bytes_max) text = text.substr(0, bytes_max + 1);
}

// An endpoint that exceeds a limit is not listed, but its record is kept, with the part that shows why it is invalid.
void cut_texts(Endpoint& endpoint) {
  cut_text(endpoint.address, EndpointLimits::address_bytes_max);
  cut_text(endpoint.zone, EndpointLimits::zone_bytes_max);
  for (auto& [key, value] : endpoint.tags) {
    cut_text(key, EndpointLimits::tag_bytes_max);
    cut_text(value, EndpointLimits::tag_bytes_max);
  }
}

void read_metadata(JsonReader& reader, Endpoint& endpoint) {
  for (Token name = reader.next(); name.kind == TokenKind::name; name = reader.next()) {
    const Token value = reader.next();
    if (value.kind == TokenKind::text) {
      set_member(endpoint, decoded(name), decoded(value));
    } else if (value.kind == TokenKind::number || value.kind == TokenKind::boolean) {
      set_member(endpoint, decoded(name), std::string(value.written));
    } else {
      json::skip(reader, value);
    }
  }
}

std::optional<Endpoint> read_record(std::string_view record) {
  JsonReader reader(record, record_limits);
  if (reader.next().kind != TokenKind::begin_object) return std::nullopt;
  Endpoint endpoint;
  for (Token name = reader.next(); name.kind == TokenKind::name; name = reader.next()) {
    const Token value = reader.next();
    if (name.written == "Addr" && value.kind == TokenKind::text) {
      endpoint.address = decoded(value);
    } else if (name.written == "Metadata" && value.kind == TokenKind::begin_object) {
      read_metadata(reader, endpoint);
    } else {
      json::skip(reader, value);
    }
  }
  // The reader repeats `invalid`, so that one look at the end suffices.
  if (reader.next().kind != TokenKind::end || endpoint.address.empty()) return std::nullopt;
  return endpoint;
}

}  // namespace

Endpoint endpoint_of(std::string_view record) {
  if (std::optional<Endpoint> endpoint = read_record(record)) {
    cut_texts(*endpoint);
    return std::move(*endpoint);
  }
  // An address has no blank, so that this is refused in any case.
  constexpr std::string_view unknown = "unknown record ";
  return {.address = std::string(unknown) + std::string(record.substr(0, EndpointLimits::address_bytes_max))};
}

std::string record_of(const Endpoint& endpoint) {
  std::string record = R"({"Op":0,"Addr":)";
  json::append_text(record, endpoint.address);
  std::string members;
  const auto name = [&](std::string_view text) {
    members += members.empty() ? '{' : ',';
    json::append_text(members, text);
    members += ':';
  };
  if (endpoint.weight != 1) {
    name("weight");
    json::append_number(members, std::uint64_t{endpoint.weight});
  }
  if (endpoint.priority != 0) {
    name("priority");
    json::append_number(members, std::uint64_t{endpoint.priority});
  }
  if (!endpoint.zone.empty()) {
    name("zone");
    json::append_text(members, endpoint.zone);
  }
  for (const auto& [key, value] : endpoint.tags) {
    name(key);
    json::append_text(members, value);
  }
  return record + R"(,"Metadata":)" + (members.empty() ? "null" : members + "}") + "}";
}

}  // namespace hawser::cluster
