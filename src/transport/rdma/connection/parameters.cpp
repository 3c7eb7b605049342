#include "transport/rdma/connection/parameters.h"

#include <bit>
#include <string>

#include "base/byte_fields.h"

namespace hawser::transport::rdma {
namespace {

constexpr std::uint32_t offer_magic = 0x4f445248;       // "HRDO"
constexpr std::uint32_t parameters_magic = 0x50445248;  // "HRDP"
constexpr std::uint8_t version = 1;

std::unexpected<Error> refused(const char* what) {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::string("the peer's RDMA ") + what));
}

}  // namespace

// Layout: u32 magic, u8 version, u8 Ethernet, u8 GID type, u8 zero, u16 LID, six zero bytes, the GID.
std::vector<std::byte> RdmaOffer::encode() const {
  return ByteWriter()
      .number(offer_magic)
      .number(version)
      .number(static_cast<std::uint8_t>(ethernet ? 1 : 0))
      .number(static_cast<std::uint8_t>(type))
      .zeros(1)
      .number(lid)
      .zeros(6)
      .bytes(gid.bytes)
      .take();
}

Result<RdmaOffer> RdmaOffer::decode(Bytes in) {
  ByteReader reader(in);
  if (in.size() != bytes || reader.number<std::uint32_t>() != offer_magic) return refused("offer is malformed");
  if (reader.number<std::uint8_t>() != version) return refused("offer is of another version");
  const auto on_ethernet = reader.number<std::uint8_t>();
  const auto gid_type = reader.number<std::uint8_t>();
  bool rest_is_zero = reader.zeros(1);
  RdmaOffer offer;
  offer.ethernet = on_ethernet == 1;
  offer.type = static_cast<GidType>(gid_type);
  offer.lid = reader.number<std::uint16_t>();
  rest_is_zero &= reader.zeros(6);
  reader.copy_to(offer.gid.bytes);
  if (on_ethernet > 1 || gid_type > 2 || !rest_is_zero) return refused("offer is malformed");
  if (offer.gid.zero()) return refused("offer has no address");
  return offer;
}

// Layout: u32 magic, u8 version, u8 Ethernet, u16 LID, u32 each: queue pair, sequence, MTU, chunk, receives, reads; u64
// domain; the GID.
std::vector<std::byte> RdmaParameters::encode() const {
  return ByteWriter()
      .number(parameters_magic)
      .number(version)
      .number(static_cast<std::uint8_t>(ethernet ? 1 : 0))
      .number(lid)
      .number(queue_pair)
      .number(sequence)
      .number(mtu_bytes)
      .number(chunk_bytes)
      .number(receives)
      .number(reads)
      .number(domain)
      .bytes(gid.bytes)
      .take();
}

Result<RdmaParameters> RdmaParameters::decode(Bytes in) {
  constexpr std::uint32_t number_max = (1U << 24) - 1;
  ByteReader reader(in);
  if (in.size() != bytes || reader.number<std::uint32_t>() != parameters_magic) {
    return refused("parameters are malformed");
  }
  if (reader.number<std::uint8_t>() != version) return refused("parameters are of another version");
  const auto on_ethernet = reader.number<std::uint8_t>();
  if (on_ethernet > 1) return refused("parameters are malformed");
  RdmaParameters out;
  out.ethernet = on_ethernet == 1;
  out.lid = reader.number<std::uint16_t>();
  out.queue_pair = reader.number<std::uint32_t>();
  out.sequence = reader.number<std::uint32_t>();
  out.mtu_bytes = reader.number<std::uint32_t>();
  out.chunk_bytes = reader.number<std::uint32_t>();
  out.receives = reader.number<std::uint32_t>();
  out.reads = reader.number<std::uint32_t>();
  out.domain = reader.number<std::uint64_t>();
  reader.copy_to(out.gid.bytes);
  if (out.queue_pair == 0 || out.queue_pair > number_max || out.sequence > number_max) {
    return refused("parameters have queue pair number 0, or a queue pair or sequence number above 24 bits");
  }
  if (!std::has_single_bit(out.mtu_bytes) || out.mtu_bytes < 256 || out.mtu_bytes > 4096) {
    return refused("parameters have an MTU that does not exist");
  }
  if (out.chunk_bytes < 4096 || out.chunk_bytes > (16U << 20) || out.chunk_bytes % 4096 != 0) {
    return refused("parameters have a chunk size that is not a multiple of 4096 bytes from 4096 to 16 MiB");
  }
  if (out.receives < 4 || out.receives > 4096)
    return refused("parameters have a number of receives outside of 4 to 4096");
  if (out.reads > 255) return refused("parameters have a number of reads above 255");
  if (out.ethernet && out.gid.zero()) return refused("parameters have no address");
  return out;
}

}  // namespace hawser::transport::rdma
