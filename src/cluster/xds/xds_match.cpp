#include "cluster/xds/xds_match.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::ProtoField;
using Header = NamingRoutes::Header;

constexpr std::size_t match_headers_max = 16;
constexpr std::uint64_t parts_of_all = 1'000'000;

struct ReadHeader {
  Header header;
  bool supported = true;
};

void set_text(ReadHeader& read, Header::Kind kind, std::string_view text) {
  read.header.kind = kind;
  read.header.text = text;
}

// StringMatcher.
Result<void> read_string_match(std::string_view message, ReadHeader& read) {
  bool known = false;
  bool unknown = false;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1: set_text(read, Header::Kind::exact, field.bytes); break;
      case 2: set_text(read, Header::Kind::prefix, field.bytes); break;
      case 3: set_text(read, Header::Kind::suffix, field.bytes); break;
      case 6: read.header.any_case = field.value != 0; return {};
      case 7: set_text(read, Header::Kind::contains, field.bytes); break;
      default: unknown = true; return {};
    }
    known = true;
    return {};
  };
  TRY(read_fields(message, visit));
  if (!known || unknown) read.supported = false;
  if (read.header.any_case) read.header.text = lower_case(read.header.text);
  return {};
}

// HeaderMatcher. Without a condition, the value must be present.
Result<ReadHeader> read_header(std::string_view message) {
  ReadHeader read;
  bool wanted = true;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1: read.header.name = lower_case(field.bytes); break;
      case 4: set_text(read, Header::Kind::exact, field.bytes); break;
      case 6: {
        read.header.kind = Header::Kind::range;
        TRY(const std::uint64_t first, read_number(field.bytes, 1));
        TRY(const std::uint64_t end, read_number(field.bytes, 2));
        read.header.first = static_cast<std::int64_t>(first);
        read.header.end = static_cast<std::int64_t>(end);
        break;
      }
      case 7:
        read.header.kind = Header::Kind::present;
        wanted = field.value != 0;
        break;
      case 8: read.header.inverted = field.value != 0; break;
      case 9: set_text(read, Header::Kind::prefix, field.bytes); break;
      case 10: set_text(read, Header::Kind::suffix, field.bytes); break;
      case 12: set_text(read, Header::Kind::contains, field.bytes); break;
      case 13: return read_string_match(field.bytes, read);
      default: read.supported = false; break;
    }
    return {};
  };
  TRY(read_fields(message, visit));
  if (read.header.name.empty()) return refuse_resource("a condition on a header has no name");
  if (read.header.kind == Header::Kind::present) {
    if (wanted == read.header.inverted) read.header.kind = Header::Kind::absent;
    read.header.inverted = false;
  }
  return read;
}

// RuntimeFractionalPercent, in parts of a million.
Result<std::uint32_t> read_fraction(std::string_view message) {
  TRY(const std::string_view percent, read_bytes(message, 1));
  TRY(const std::uint64_t numerator, read_number(percent, 1));
  TRY(const std::uint64_t denominator, read_number(percent, 2));
  if (denominator > 2) return refuse_resource("a fraction has the unknown denominator " + std::to_string(denominator));
  const std::uint64_t factor = denominator == 0 ? 10'000 : denominator == 1 ? 100 : 1;
  return static_cast<std::uint32_t>(std::min(numerator, parts_of_all) * factor > parts_of_all
                                        ? parts_of_all
                                        : std::min(numerator, parts_of_all) * factor);
}

}  // namespace

bool XdsMatch::matches_all() const noexcept {
  return kind == Kind::calls && !match.whole && (match.path.empty() || match.path == "/") && match.headers.empty() &&
         match.parts_per_million == parts_of_all;
}

Result<XdsMatch> read_route_match(std::string_view message) {
  XdsMatch read;
  bool has_path = false;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1:
      case 2:
        has_path = true;
        read.match.path = field.bytes;
        read.match.whole = field.number == 2;
        break;
      case 4: {
        TRY(const std::uint64_t sensitive, read_wrapped_number(field.bytes));
        read.match.any_case = sensitive == 0;
        break;
      }
      case 6: {
        TRY(ReadHeader one, read_header(field.bytes));
        if (read.match.headers.size() == match_headers_max) {
          return refuse_resource("a route has conditions on more than " + std::to_string(match_headers_max) +
                                 " headers");
        }
        if (!one.supported) read.kind = XdsMatch::Kind::unsupported;
        read.match.headers.push_back(std::move(one.header));
        break;
      }
      case 7: read.kind = XdsMatch::Kind::nothing; break;  // Parameters of a query, which calls have not.
      case 9: return assign(read.match.parts_per_million, read_fraction(field.bytes));
      default:
        if (read.kind == XdsMatch::Kind::calls) read.kind = XdsMatch::Kind::unsupported;
        break;
    }
    return {};
  };
  TRY(read_fields(message, visit));
  if (!has_path && read.kind == XdsMatch::Kind::calls) read.kind = XdsMatch::Kind::unsupported;
  if (read.match.any_case) read.match.path = lower_case(read.match.path);
  return read;
}

}  // namespace hawser::cluster
