#include "transport/rdma/connection/parameters.h"

#include <bit>
#include <cstring>
#include <string>

#include "base/little_endian.h"

namespace hawser::transport::rdma {
namespace {

constexpr std::uint32_t offer_magic = 0x4f445248;       // "HRDO"
constexpr std::uint32_t parameters_magic = 0x50445248;  // "HRDP"
constexpr std::uint8_t version = 1;

std::unexpected<Error> wrong(const char* what) {
  return fail(ErrorCode::protocol_error, std::string("the peer's RDMA ") + what, ErrorScope::connection,
              Initiator::peer);
}

}  // namespace

// Layout: u32 magic, u8 version, u8 Ethernet, u8 GID type, u8 zero, u16 LID, six zero bytes, the GID.
std::vector<std::byte> Offer::encode() const {
  std::vector<std::byte> out(bytes);
  store_le(out.data(), offer_magic);
  store_le(out.data() + 4, version);
  store_le(out.data() + 5, static_cast<std::uint8_t>(ethernet ? 1 : 0));
  store_le(out.data() + 6, static_cast<std::uint8_t>(type));
  store_le(out.data() + 8, lid);
  std::memcpy(out.data() + 16, gid.bytes.data(), 16);
  return out;
}

Result<Offer> Offer::decode(Bytes in) {
  if (in.size() != bytes || load_le<std::uint32_t>(in.data()) != offer_magic) return wrong("offer is malformed");
  if (load_le<std::uint8_t>(in.data() + 4) != version) return wrong("offer is of another version");
  const auto ethernet = load_le<std::uint8_t>(in.data() + 5);
  const auto type = load_le<std::uint8_t>(in.data() + 6);
  if (ethernet > 1 || type > 2 || load_le<std::uint8_t>(in.data() + 7) != 0) return wrong("offer is malformed");
  for (std::size_t i = 10; i < 16; ++i) {
    if (in[i] != std::byte{0}) return wrong("offer is malformed");
  }
  Offer offer{
      .ethernet = ethernet == 1, .type = static_cast<GidType>(type), .lid = load_le<std::uint16_t>(in.data() + 8)};
  std::memcpy(offer.gid.bytes.data(), in.data() + 16, 16);
  if (offer.gid.zero()) return wrong("offer has no address");
  return offer;
}

// Layout: u32 magic, u8 version, u8 Ethernet, u16 LID, u32 each: queue pair, sequence, MTU, chunk, receives, reads; u64
// domain; the GID.
std::vector<std::byte> Parameters::encode() const {
  std::vector<std::byte> out(bytes);
  store_le(out.data(), parameters_magic);
  store_le(out.data() + 4, version);
  store_le(out.data() + 5, static_cast<std::uint8_t>(ethernet ? 1 : 0));
  store_le(out.data() + 6, lid);
  store_le(out.data() + 8, queue_pair);
  store_le(out.data() + 12, sequence);
  store_le(out.data() + 16, mtu_bytes);
  store_le(out.data() + 20, chunk_bytes);
  store_le(out.data() + 24, receives);
  store_le(out.data() + 28, reads);
  store_le(out.data() + 32, domain);
  std::memcpy(out.data() + 40, gid.bytes.data(), 16);
  return out;
}

Result<Parameters> Parameters::decode(Bytes in) {
  constexpr std::uint32_t number_max = (1U << 24) - 1;
  if (in.size() != bytes || load_le<std::uint32_t>(in.data()) != parameters_magic) {
    return wrong("parameters are malformed");
  }
  if (load_le<std::uint8_t>(in.data() + 4) != version) return wrong("parameters are of another version");
  const auto ethernet = load_le<std::uint8_t>(in.data() + 5);
  if (ethernet > 1) return wrong("parameters are malformed");
  Parameters out{.ethernet = ethernet == 1,
                 .lid = load_le<std::uint16_t>(in.data() + 6),
                 .queue_pair = load_le<std::uint32_t>(in.data() + 8),
                 .sequence = load_le<std::uint32_t>(in.data() + 12),
                 .mtu_bytes = load_le<std::uint32_t>(in.data() + 16),
                 .chunk_bytes = load_le<std::uint32_t>(in.data() + 20),
                 .receives = load_le<std::uint32_t>(in.data() + 24),
                 .reads = load_le<std::uint32_t>(in.data() + 28),
                 .domain = load_le<std::uint64_t>(in.data() + 32)};
  std::memcpy(out.gid.bytes.data(), in.data() + 40, 16);
  if (out.queue_pair == 0 || out.queue_pair > number_max || out.sequence > number_max) {
    return wrong("parameters name no queue pair");
  }
  if (!std::has_single_bit(out.mtu_bytes) || out.mtu_bytes < 256 || out.mtu_bytes > 4096) {
    return wrong("parameters have an MTU that does not exist");
  }
  if (out.chunk_bytes < 4096 || out.chunk_bytes > (16U << 20) || out.chunk_bytes % 4096 != 0) {
    return wrong("parameters have chunks out of bounds");
  }
  if (out.receives < 4 || out.receives > 4096) return wrong("parameters have receives out of bounds");
  if (out.reads > 255) return wrong("parameters have reads out of bounds");
  if (out.ethernet && out.gid.zero()) return wrong("parameters have no address");
  return out;
}

}  // namespace hawser::transport::rdma
