#include "cluster/dns_config.h"

#include <charconv>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/ascii_case.h"
#include "json/reader.h"

namespace hawser::cluster {
namespace {

using json::JsonReader;
using json::Token;
using json::TokenKind;

constexpr std::string_view config_attribute = "grpc_config=";
constexpr json::Limits choice_limits{.depth_max = 32, .values_max = 10'000};

std::unexpected<Error> bad_choices(const std::string& why) {
  return fail(ErrorCode::invalid_argument, "the TXT record grpc_config " + why);
}

// This library is for C++, as gRPC's own is.
bool is_own_language(std::string_view name) {
  return equal_without_case(name, "c++") || equal_without_case(name, "hawser");
}

// True if a text of the list satisfies `fits`, or if the list is empty. False if the value is not a list.
template <class Fits>
bool any_text(JsonReader& reader, const Token& begin, Fits fits) {
  if (begin.kind != TokenKind::begin_list) {
    json::skip(reader, begin);
    return false;
  }
  bool empty = true;
  bool found = false;
  for (Token one = reader.next(); one.kind != TokenKind::end_list; one = reader.next()) {
    if (one.kind == TokenKind::invalid || one.kind == TokenKind::end) return false;
    empty = false;
    std::string text;
    if (one.kind == TokenKind::text) json::decode(one, text);
    if (one.kind != TokenKind::text) json::skip(reader, one);
    found = found || fits(text);
  }
  return empty || found;
}

bool drawn(const Token& token, unsigned lot) {
  unsigned percentage = 0;
  const char* const end = token.written.data() + token.written.size();
  const auto [stop, status] = std::from_chars(token.written.data(), end, percentage);
  return token.kind == TokenKind::number && status == std::errc() && stop == end && lot < percentage;
}

// Reads a choice, and returns its service config if it is for the client.
std::optional<std::string_view> read_choice(JsonReader& reader, std::string_view text, const DnsConfigClient& client) {
  bool fits = true;
  std::optional<std::string_view> config;
  for (Token name = reader.next(); name.kind == TokenKind::name; name = reader.next()) {
    const Token value = reader.next();
    if (name.written == "clientLanguage") {
      fits = any_text(reader, value, is_own_language) && fits;
    } else if (name.written == "clientHostName") {
      fits = any_text(reader, value, [&](const std::string& one) { return one == client.host_name; }) && fits;
    } else if (name.written == "serviceConfig" && value.kind == TokenKind::begin_object) {
      const std::size_t begin = reader.offset() - 1;
      json::skip(reader, value);
      config = text.substr(begin, reader.offset() - begin);
    } else {
      // A field that is not known may be a condition.
      fits = name.written == "percentage" && drawn(value, client.lot) && fits;
      json::skip(reader, value);
    }
  }
  return fits ? config : std::nullopt;
}

}  // namespace

Result<std::string> choose_dns_config(const std::vector<DnsRecord>& records, const DnsConfigClient& client) {
  std::optional<std::string_view> text;
  for (const DnsRecord& record : records) {
    if (!record.host.starts_with(config_attribute)) continue;
    if (text) return bad_choices("exists twice, and the order of records means nothing");
    text = std::string_view(record.host).substr(config_attribute.size());
  }
  if (!text) return std::string();
  JsonReader reader(*text, choice_limits);
  std::optional<std::string_view> chosen;
  const bool is_list = reader.next().kind == TokenKind::begin_list;
  if (is_list) {
    for (Token one = reader.next(); one.kind == TokenKind::begin_object; one = reader.next()) {
      const std::optional<std::string_view> config = read_choice(reader, *text, client);
      if (!chosen) chosen = config;
    }
  }
  if (!is_list || reader.next().kind != TokenKind::end) {
    return bad_choices(reader.problem().empty() ? "is not a list of objects" : "is malformed: " + reader.problem());
  }
  return std::string(chosen.value_or(std::string_view()));
}

}  // namespace hawser::cluster
