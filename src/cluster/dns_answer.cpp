#include "cluster/dns_answer.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/decimal_text.h"
#include "transport/tcp/socket.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t dns_header_bytes = 12;
constexpr std::size_t dns_name_bytes_max = 255;
constexpr unsigned pointer_bits = 0xc0;  // A length with these bits: the rest of the name lies elsewhere.
// A name of 255 bytes has at most this number of labels, so that no server needs more pointers.
constexpr unsigned dns_pointers_max = 127;

// Reads a message in order. After a read beyond the end, good() is false and every value is 0.
class DnsReader {
 public:
  explicit DnsReader(Bytes message) noexcept : message_(message) {}

  bool good() const noexcept { return good_; }
  std::size_t at() const noexcept { return at_; }
  void fail() noexcept { good_ = false; }
  void go_to(std::size_t place) noexcept { at_ = place; }
  Bytes take(std::size_t bytes) noexcept {
    if (!good_ || at_ > message_.size() || message_.size() - at_ < bytes) {
      good_ = false;
      return {};
    }
    const Bytes taken = message_.subspan(at_, bytes);
    at_ += bytes;
    return taken;
  }
  std::uint32_t number(std::size_t bytes) noexcept {
    std::uint32_t value = 0;
    for (const std::byte byte : take(bytes)) value = value << 8 | std::to_integer<std::uint32_t>(byte);
    return value;
  }
  std::uint16_t number16() noexcept { return static_cast<std::uint16_t>(number(2)); }

  // A name that may be continued elsewhere. A pointer leads to an earlier place only, so that the name ends.
  std::string name() {
    std::string text;
    std::size_t behind = 0;  // The place behind the first pointer.
    std::size_t bound = at_;
    unsigned pointers = 0;
    while (good_) {
      const std::uint32_t length = number(1);
      if (length == 0) break;
      if ((length & pointer_bits) == pointer_bits) {
        const std::size_t to = (length & ~pointer_bits) << 8 | number(1);
        if (behind == 0) behind = at_;
        good_ = good_ && to < bound && ++pointers <= dns_pointers_max;
        at_ = bound = to;
        continue;
      }
      if (!text.empty()) text += '.';
      for (const std::byte byte : take(length)) text += static_cast<char>(byte);
      good_ = good_ && (length & pointer_bits) == 0 && text.size() <= dns_name_bytes_max;
    }
    if (behind != 0) at_ = behind;
    return text;
  }
  // Goes behind a name without following its pointers.
  void skip_name() noexcept {
    while (good_) {
      const std::uint32_t length = number(1);
      if (length == 0) return;
      if ((length & pointer_bits) == pointer_bits) {
        take(1);
        return;
      }
      good_ = good_ && (length & pointer_bits) == 0;
      take(length);
    }
  }

 private:
  Bytes message_;
  std::size_t at_ = 0;
  bool good_ = true;
};

// An address as it stands before a port.
std::string host_text(int family, Bytes address) {
  const std::string text = transport::to_string(transport::address_of(family, address.data(), 1));
  return text.substr(0, text.rfind(':'));
}

// Reads the data of a record. They are not longer than `bytes`.
DnsRecord read_record(DnsReader& reader, int type, std::size_t bytes) {
  DnsRecord record;
  if (type == dns_srv) {
    record.priority = reader.number16();
    record.weight = reader.number16();
    record.port = reader.number16();
    record.host = reader.name();
    return record;
  }
  if (type == dns_txt) {
    for (std::size_t left = bytes; left > 0 && reader.good();) {
      const std::size_t part = reader.number(1);
      if (part >= left) {
        reader.fail();
        break;
      }
      for (const std::byte byte : reader.take(part)) record.host += static_cast<char>(byte);
      left -= part + 1;
    }
    return record;
  }
  const std::size_t expected = type == dns_a ? 4 : 16;
  const Bytes address = reader.take(bytes == expected ? bytes : std::numeric_limits<std::size_t>::max());
  if (reader.good()) record.host = host_text(type == dns_a ? AF_INET : AF_INET6, address);
  return record;
}

}  // namespace

Result<DnsAnswer> parse_dns_answer(Bytes message, int type) {
  DnsReader reader(message);
  reader.take(4);
  const std::uint16_t questions = reader.number16();
  const std::uint16_t answers = reader.number16();
  reader.go_to(dns_header_bytes);
  for (unsigned i = 0; i < questions && reader.good(); ++i) {
    reader.skip_name();
    reader.take(4);
  }
  DnsAnswer answer{.records = {}, .ttl_seconds = std::numeric_limits<std::uint32_t>::max()};
  for (unsigned i = 0; i < answers && reader.good(); ++i) {
    reader.skip_name();
    const std::uint16_t record_type = reader.number16();
    reader.take(2);
    const std::uint32_t ttl = reader.number(4);
    // RFC 2181, section 8: a number with the highest bit counts as 0.
    answer.ttl_seconds = std::min(answer.ttl_seconds, ttl > INT32_MAX ? 0 : ttl);
    const std::uint16_t bytes = reader.number16();
    const std::size_t end = reader.at() + bytes;
    if (std::cmp_equal(record_type, type)) answer.records.push_back(read_record(reader, type, bytes));
    if (reader.at() > end) reader.fail();
    reader.go_to(end);
  }
  if (!reader.good() || reader.at() > message.size()) {
    return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                               "the name server's answer of " + count_text(message.size(), "byte") + " is malformed"));
  }
  return answer;
}

}  // namespace hawser::cluster
