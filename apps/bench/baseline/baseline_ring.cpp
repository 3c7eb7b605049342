#include "bench/baseline/baseline_ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace hawser::bench {
namespace {

// Size of the message that names the memory: a path in /proc, padded with zeros.
constexpr std::size_t path_bytes = 64;

void block(const BaselineSocket& socket) { fcntl(socket.descriptor(), F_SETFL, 0); }

}  // namespace

void RingChannel::Unmap::operator()(BaselineRings* rings) const noexcept { munmap(rings, sizeof(BaselineRings)); }

RingChannel::Mapping RingChannel::map(int descriptor) {
  // Memory that is all zeros is a valid empty ring.
  void* const memory =
      mmap(nullptr, sizeof(BaselineRings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (memory == MAP_FAILED) fail_with_errno("cannot map shared memory");
  return Mapping(static_cast<BaselineRings*>(memory));
}

RingChannel RingChannel::serve(BaselineSocket socket) {
  block(socket);
  const BaselineSocket memory(memfd_create("hawser-bench", MFD_CLOEXEC));
  if (memory.descriptor() < 0 || ftruncate(memory.descriptor(), sizeof(BaselineRings)) != 0)
    fail_with_errno("no shared memory");
  Mapping rings = map(memory.descriptor());
  std::string path = fmt::format("/proc/{}/fd/{}", getpid(), memory.descriptor());
  path.resize(path_bytes);
  char opened = 0;
  if (::send(socket.descriptor(), path.data(), path.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(path.size()) ||
      recv(socket.descriptor(), &opened, 1, 0) != 1) {
    throw std::runtime_error("the client does not open the shared memory");
  }
  return {std::move(socket), std::move(rings), true};
}

RingChannel RingChannel::connect(BaselineSocket socket) {
  block(socket);
  char path[path_bytes];
  if (recv(socket.descriptor(), path, sizeof(path), MSG_WAITALL) != sizeof(path)) fail_with_errno("no shared memory");
  const BaselineSocket memory(open(path, O_RDWR | O_CLOEXEC));
  if (memory.descriptor() < 0) fail_with_errno("cannot open shared memory");
  Mapping rings = map(memory.descriptor());
  const char opened = 1;
  ::send(socket.descriptor(), &opened, 1, MSG_NOSIGNAL);
  return {std::move(socket), std::move(rings), false};
}

RingChannel::RingChannel(BaselineSocket socket, Mapping rings, bool server) noexcept
    : socket_(std::move(socket)),
      rings_(std::move(rings)),
      in_(server ? &rings_->to_server : &rings_->to_client),
      out_(server ? &rings_->to_client : &rings_->to_server) {}

RingChannel::~RingChannel() {
  if (rings_) out_->closed.store(1, std::memory_order_release);
}

std::string_view RingChannel::receive(std::size_t most) noexcept {
  if (read_ != in_->read.load(std::memory_order_relaxed)) in_->read.store(read_, std::memory_order_release);
  if (available_ == read_) available_ = in_->written.load(std::memory_order_acquire);
  const std::size_t at = read_ % BaselineRing::bytes;
  const std::size_t count = std::min({most, step_bytes, available_ - read_, BaselineRing::bytes - at});
  if (count == 0) look_for_end();
  read_ += count;
  return {in_->data + at, count};
}

void RingChannel::look_for_end() noexcept { lost_ = in_->closed.load(std::memory_order_acquire) != 0; }

std::size_t RingChannel::room() noexcept {
  if (BaselineRing::bytes - (written_ - freed_) < step_bytes) freed_ = out_->read.load(std::memory_order_acquire);
  return BaselineRing::bytes - (written_ - freed_);
}

std::size_t RingChannel::send(std::string_view bytes) noexcept {
  bytes = bytes.substr(0, std::min(room(), step_bytes));
  if (bytes.empty()) look_for_end();
  const std::size_t at = written_ % BaselineRing::bytes;
  const std::size_t first = std::min(bytes.size(), BaselineRing::bytes - at);
  std::memcpy(out_->data + at, bytes.data(), first);
  std::memcpy(out_->data, bytes.data() + first, bytes.size() - first);
  written_ += bytes.size();
  out_->written.store(written_, std::memory_order_release);
  return bytes.size();
}

}  // namespace hawser::bench
