#include "transport/shm/handshake.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/byte_fields.h"
#include "base/descriptor.h"

namespace hawser::transport::shm {
namespace {

// Changed whenever the layout or the protocol changes.
constexpr std::uint32_t version = 2;

ByteWriter versioned() {
  ByteWriter writer;
  writer.number(version);
  return writer;
}

// `reader` has read all fields of `value`, the first of which was the version.
template <class T>
Result<T> checked(T value, const ByteReader& reader, std::uint32_t theirs, const char* what) {
  if (theirs == version && reader.finished()) return value;
  return fail(Error::of_connection(
      Initiator::peer, ErrorCode::protocol_error,
      theirs == version ? std::string("malformed ") + what + " for shared memory"
                        : "the peer's shared memory is of another version: build both sides from one release"));
}

}  // namespace

Result<HostIdentity> HostIdentity::here() {
  HostIdentity host;
  // Not by a std::ifstream, to which a lack of memory is an unreadable file.
  const Descriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  const ssize_t length = file.valid() ? ::read(file.get(), text.data(), text.size()) : -1;
  std::size_t digits = 0;
  for (ssize_t i = 0; i < length; ++i) {
    const char c = text[static_cast<std::size_t>(i)];
    if (c == '-' || c == '\n' || digits == 2 * host.boot.size()) continue;
    const auto digit = static_cast<unsigned>(c >= 'a' ? c - 'a' + 10 : c - '0');
    host.boot[digits / 2] = host.boot[digits / 2] << 4 | static_cast<std::byte>(digit & 0xfU);
    ++digits;
  }
  struct stat status{};
  if (digits != 2 * host.boot.size() || stat("/proc/self/ns/net", &status) != 0) {
    return fail(
        Error::of_transport(ErrorCode::unavailable, "shared memory needs /proc, which can't be read: mount it"));
  }
  host.network_device = status.st_dev;
  host.network_inode = status.st_ino;
  return host;
}

std::vector<std::byte> encode(const ShmOffer& offer) {
  return versioned()
      .bytes(offer.host.boot)
      .number(offer.host.network_device)
      .number(offer.host.network_inode)
      .number(offer.ring_bytes)
      .number(offer.slab_bytes)
      .number(offer.eager_bytes)
      .take();
}

Result<ShmOffer> decode_offer(Bytes bytes) {
  ByteReader reader(bytes);
  const auto theirs = reader.number<std::uint32_t>();
  ShmOffer offer;
  reader.copy_to(offer.host.boot);
  offer.host.network_device = reader.number<std::uint64_t>();
  offer.host.network_inode = reader.number<std::uint64_t>();
  offer.ring_bytes = reader.number<std::uint64_t>();
  offer.slab_bytes = reader.number<std::uint64_t>();
  offer.eager_bytes = reader.number<std::uint64_t>();
  return checked(offer, reader, theirs, "offer");
}

std::vector<std::byte> encode(const Selection& selection) {
  return versioned()
      .bytes(selection.socket)
      .bytes(selection.secret)
      .number(selection.ring_bytes)
      .number(selection.slab_bytes)
      .number(selection.eager_bytes)
      .take();
}

Result<Selection> decode_selection(Bytes bytes) {
  ByteReader reader(bytes);
  const auto theirs = reader.number<std::uint32_t>();
  Selection selection;
  reader.copy_to(selection.socket);
  reader.copy_to(selection.secret);
  selection.ring_bytes = reader.number<std::uint64_t>();
  selection.slab_bytes = reader.number<std::uint64_t>();
  selection.eager_bytes = reader.number<std::uint64_t>();
  return checked(selection, reader, theirs, "proposal");
}

std::vector<std::byte> encode(const ShmAnswer&) { return versioned().take(); }

Result<ShmAnswer> decode_answer(Bytes bytes) {
  ByteReader reader(bytes);
  const auto theirs = reader.number<std::uint32_t>();
  return checked(ShmAnswer{}, reader, theirs, "answer");
}

}  // namespace hawser::transport::shm
