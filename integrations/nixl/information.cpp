#include "information.h"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <utility>

namespace hawser::nixl {
namespace {

constexpr std::uint8_t version = 1;
constexpr std::uint8_t information_kind = 'A';
constexpr std::uint8_t region_kind = 'R';
constexpr std::size_t addresses_max = 64;

template <std::unsigned_integral T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void put(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint16_t>(text.size()));
  out += text;
}

// Reads values in the order of put(). After the first value that is missing, ok() is false and all values are 0.
class Reader {
 public:
  explicit Reader(std::string_view bytes) noexcept : bytes_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    const std::string_view part = take(sizeof(T));
    T value = 0;
    for (std::size_t i = part.size(); i-- > 0;) {
      value = static_cast<T>(static_cast<std::uint64_t>(value) << 8 | static_cast<unsigned char>(part[i]));
    }
    return value;
  }
  std::string text() { return std::string(take(number<std::uint16_t>())); }
  bool ok() const noexcept { return ok_; }
  bool at_end() const noexcept { return ok_ && bytes_.empty(); }

 private:
  std::string_view take(std::size_t count) {
    if (!ok_ || bytes_.size() < count) {
      ok_ = false;
      return {};
    }
    const std::string_view part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return part;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

bool begins(Reader& reader, std::uint8_t kind) {
  const bool of_version = reader.number<std::uint8_t>() == version;
  return reader.number<std::uint8_t>() == kind && of_version;
}

std::unexpected<Error> malformed(std::string_view what, std::size_t bytes) {
  return fail(ErrorCode::invalid_argument, "invalid " + std::string(what) + " of " + std::to_string(bytes) +
                                               " bytes: both agents need the HAWSER back end of one version");
}

}  // namespace

std::string encode(const AgentInformation& information) {
  std::string out;
  put(out, version);
  put(out, information_kind);
  put(out, information.id);
  put(out, information.host);
  const std::size_t count = std::min(information.addresses.size(), addresses_max);
  put(out, static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) put(out, information.addresses[i]);
  return out;
}

Result<AgentInformation> decode_information(std::string_view bytes) {
  Reader reader(bytes);
  AgentInformation information;
  const bool begun = begins(reader, information_kind);
  information.id = reader.number<std::uint64_t>();
  information.host = reader.text();
  const std::size_t count = reader.number<std::uint8_t>();
  for (std::size_t i = 0; i < count && reader.ok(); ++i) information.addresses.push_back(reader.text());
  if (!begun || !reader.at_end() || count > addresses_max) return malformed("information about an agent", bytes.size());
  return information;
}

std::string encode(const RemoteRegion& region) {
  std::string out;
  put(out, version);
  put(out, region_kind);
  put(out, region.bytes);
  put(out, static_cast<std::uint8_t>((region.readable ? 1 : 0) | (region.writable ? 2 : 0)));
  put(out, region.owner);
  put(out, region.slot);
  put(out, region.generation);
  put(out, region.capability);
  const auto used = std::ranges::count_if(region.places, [](const auto& place) { return place.domain != 0; });
  put(out, static_cast<std::uint8_t>(used));
  for (const RemoteRegion::Place& place : region.places) {
    if (place.domain == 0) continue;
    put(out, place.domain);
    put(out, place.address);
    put(out, place.key);
  }
  return out;
}

Result<RemoteRegion> decode_region(std::string_view bytes) {
  Reader reader(bytes);
  RemoteRegion region;
  const bool begun = begins(reader, region_kind);
  region.bytes = reader.number<std::uint64_t>();
  const auto rights = reader.number<std::uint8_t>();
  region.readable = (rights & 1) != 0;
  region.writable = (rights & 2) != 0;
  region.owner = reader.number<std::uint64_t>();
  region.slot = reader.number<std::uint32_t>();
  region.generation = reader.number<std::uint32_t>();
  region.capability = reader.number<std::uint64_t>();
  const std::size_t places = reader.number<std::uint8_t>();
  for (std::size_t i = 0; i < places && i < RemoteRegion::places_max; ++i) {
    region.places[i].domain = reader.number<std::uint64_t>();
    region.places[i].address = reader.number<std::uint64_t>();
    region.places[i].key = reader.number<std::uint32_t>();
  }
  if (!begun || !reader.at_end() || places > RemoteRegion::places_max) {
    return malformed("handle of a registration", bytes.size());
  }
  return region;
}

}  // namespace hawser::nixl
