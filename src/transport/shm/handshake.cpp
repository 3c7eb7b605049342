#include "transport/shm/handshake.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "base/little_endian.h"

namespace hawser::transport::shm {
namespace {

// Changed whenever the layout or the protocol changes.
constexpr std::uint32_t version = 2;

class FieldWriter {
 public:
  FieldWriter() { number(version); }
  template <class T>
  FieldWriter& number(T value) {
    bytes_.resize(bytes_.size() + sizeof value);
    store_le(bytes_.data() + bytes_.size() - sizeof value, value);
    return *this;
  }
  FieldWriter& bytes(Bytes value) {
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads the fields that a Writer wrote. done() shows whether any was missing.
class FieldReader {
 public:
  explicit FieldReader(Bytes bytes) noexcept : rest_(bytes) {
    std::uint32_t theirs = 0;
    number(theirs);
    same_version_ = theirs == version;
  }
  template <class T>
  FieldReader& number(T& value) {
    if (const std::byte* from = take(sizeof value)) value = load_le<T>(from);
    return *this;
  }
  FieldReader& bytes(MutableBytes value) {
    if (const std::byte* from = take(value.size())) std::memcpy(value.data(), from, value.size());
    return *this;
  }
  Result<void> done(const char* what) const {
    if (same_version_ && whole_ && rest_.empty()) return {};
    return fail(ErrorCode::protocol_error,
                same_version_ ? std::string("malformed ") + what + " for shared memory"
                              : "the peer's shared memory is of another version: build both sides from one release",
                ErrorScope::connection, Initiator::peer);
  }

 private:
  const std::byte* take(std::size_t size) noexcept {
    whole_ = whole_ && size <= rest_.size();
    if (!whole_) return nullptr;
    const std::byte* from = rest_.data();
    rest_ = rest_.subspan(size);
    return from;
  }

  Bytes rest_;
  bool whole_ = true;
  bool same_version_ = false;
};

template <class T>
Result<T> checked(T value, const Result<void>& done) {
  if (!done) return std::unexpected(done.error());
  return value;
}

}  // namespace

Result<HostIdentity> HostIdentity::here() {
  HostIdentity host;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  file >> text;
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == '-' || digits == 2 * host.boot.size()) continue;
    const auto digit = static_cast<unsigned>(c >= 'a' ? c - 'a' + 10 : c - '0');
    host.boot[digits / 2] = host.boot[digits / 2] << 4 | static_cast<std::byte>(digit & 0xfU);
    ++digits;
  }
  struct stat status{};
  if (digits != 2 * host.boot.size() || stat("/proc/self/ns/net", &status) != 0) {
    return fail(ErrorCode::unavailable, "shared memory needs /proc, which can't be read: mount it",
                ErrorScope::transport);
  }
  host.network_device = status.st_dev;
  host.network_inode = status.st_ino;
  return host;
}

std::vector<std::byte> encode(const Offer& offer) {
  return FieldWriter()
      .bytes(offer.host.boot)
      .number(offer.host.network_device)
      .number(offer.host.network_inode)
      .number(offer.ring_bytes)
      .number(offer.slab_bytes)
      .number(offer.eager_bytes)
      .take();
}

Result<Offer> decode_offer(Bytes bytes) {
  Offer offer;
  FieldReader reader(bytes);
  reader.bytes(offer.host.boot)
      .number(offer.host.network_device)
      .number(offer.host.network_inode)
      .number(offer.ring_bytes)
      .number(offer.slab_bytes)
      .number(offer.eager_bytes);
  return checked(offer, reader.done("offer"));
}

std::vector<std::byte> encode(const Selection& selection) {
  return FieldWriter()
      .bytes(selection.socket)
      .bytes(selection.secret)
      .number(selection.ring_bytes)
      .number(selection.slab_bytes)
      .number(selection.eager_bytes)
      .take();
}

Result<Selection> decode_selection(Bytes bytes) {
  Selection selection;
  FieldReader reader(bytes);
  reader.bytes(selection.socket)
      .bytes(selection.secret)
      .number(selection.ring_bytes)
      .number(selection.slab_bytes)
      .number(selection.eager_bytes);
  return checked(selection, reader.done("proposal"));
}

std::vector<std::byte> encode(const Answer&) { return FieldWriter().take(); }

Result<Answer> decode_answer(Bytes bytes) { return checked(Answer{}, FieldReader(bytes).done("answer")); }

}  // namespace hawser::transport::shm
