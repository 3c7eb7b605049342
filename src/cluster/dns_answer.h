#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::cluster {

// Types of records.
inline constexpr int dns_a = 1;
inline constexpr int dns_txt = 16;
inline constexpr int dns_aaaa = 28;
inline constexpr int dns_srv = 33;

struct DnsRecord {
  // A: "192.0.2.1". AAAA: "[2001:db8::1]". SRV: the target, without a dot at its end. TXT: the text, whose parts are
  // joined.
  std::string host;
  std::uint16_t port = 0;      // The others are of SRV only.
  std::uint16_t priority = 0;  // Hosts of a smaller number are used first.
  std::uint16_t weight = 0;
};

struct DnsAnswer {
  std::vector<DnsRecord> records;
  std::uint32_t ttl_seconds = 0;  // The shortest of the answer, also of aliases.
};

// Reads the records of `type` in an answer of a name server (RFC 1035, section 4; RFC 2782 for SRV). No I/O. Fails with
// `protocol_error`.
Result<DnsAnswer> parse_dns_answer(Bytes message, int type);

}  // namespace hawser::cluster
