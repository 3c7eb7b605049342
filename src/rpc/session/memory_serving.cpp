// The owner's side of MemoryFrames: serves the peer's accesses to exposed memory.
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "hawser/crc32c.h"
#include "hawser/transport/kept_payload.h"
#include "hawser/transport/poller.h"
#include "rpc/session/memory_frames.h"
#include "rpc/session/session.h"

namespace hawser::detail {
namespace {

using transport::ReceiveBuffer;
using wire::CallId;
using wire::MemoryAction;

// Writes of at least this size are answered at once, instead of at the end of the tick, if only the processors of both
// sides move the bytes.
constexpr std::size_t early_reply_bytes_min = std::size_t{16} << 10;

constexpr std::uint32_t number_of(MemoryAction action) noexcept { return static_cast<std::uint32_t>(action); }

Error refusal(ErrorCode code, std::string text) { return Error::of_call(code, std::move(text)); }

Error stale() {
  return refusal(ErrorCode::stale_handle,
                 "the region is not exposed: it was revoked, its lease has ended, or its handle is of another peer or "
                 "of an earlier process: ask the owner for a new handle");
}

Error not_by_processor() {
  return refusal(ErrorCode::unavailable,
                 "the region is memory of a dma-buf descriptor, which the owner's processor cannot access: only RDMA "
                 "devices read and write it, without atomics and checksums (RemoteCapabilities::one_sided)");
}

bool within(const Grant& grant, std::uint64_t offset, std::uint64_t bytes) noexcept {
  return offset <= grant.memory().size() && bytes <= grant.memory().size() - offset;
}

// Owns the bytes of one reply until they have been sent. They are a copy, which nobody else knows.
struct ReplyBytes final : transport::KeptPayload, PooledFrame {
  explicit ReplyBytes(Buffer of) noexcept : bytes(std::move(of)) {}
  void on_send_complete() noexcept override { delete this; }
  Block& block() noexcept override { return *bytes.block(); }
  Buffer bytes;
};

}  // namespace

bool MemoryFrames::Arriving::enter() noexcept {
  // A peer may stretch its payload as long as it likes, so the lease is compared at each receive.
  if (grant->leased() && grant->lease_ended(frames.session_.session_loop().poller().now())) return false;
  return grant->enter();
}

// Finds the region and checks rights and bounds. The length of the body has been checked.
MemoryFrames::Served MemoryFrames::check(std::uint32_t action, const wire::MemoryBody& body) const {
  const bool atomic = wire::MemoryBody::atomic(action);
  const auto& regions = session_.settings().regions;
  std::shared_ptr<Grant> grant = regions == nullptr ? nullptr : regions->find(body.region());
  if (grant == nullptr || (grant->leased() && grant->lease_ended(session_.session_loop().poller().now()))) {
    return {nullptr, stale()};
  }
  const bool reads = action != number_of(MemoryAction::write);
  const bool writes = action != number_of(MemoryAction::read);
  if ((reads && !grant->readable()) || (writes && !grant->writable())) {
    return {nullptr, refusal(ErrorCode::invalid_argument,
                             std::string("the region was not exposed to be ") + (atomic   ? "read and written"
                                                                                 : writes ? "written"
                                                                                          : "read"))};
  }
  if (grant->dmabuf()) return {nullptr, not_by_processor()};
  const auto outside = [&](std::uint64_t offset, std::uint64_t bytes) {
    return refusal(ErrorCode::invalid_argument, "the range of " + count_text(bytes, "byte") + " at " +
                                                    std::to_string(offset) + " is not within the region's " +
                                                    std::to_string(grant->memory().size()));
  };
  if (atomic) {
    const std::uint64_t offset = body.operands().offset;
    if (!within(*grant, offset, sizeof(std::uint64_t))) return {nullptr, outside(offset, sizeof(std::uint64_t))};
    if (reinterpret_cast<std::uintptr_t>(grant->memory().data() + offset) % sizeof(std::uint64_t) != 0) {
      return {nullptr, refusal(ErrorCode::invalid_argument, "an atomic at offset " + std::to_string(offset) +
                                                                " is not aligned to 8 bytes in the owner's memory")};
    }
    return {std::move(grant), {}};
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < body.ranges(); ++i) {
    const wire::MemoryRange range = body.range(i);
    if (!within(*grant, range.offset, range.bytes)) return {nullptr, outside(range.offset, range.bytes)};
    bytes += range.bytes;
  }
  if (reads && bytes > wire::memory_read_bytes_max) {
    return {nullptr, refusal(ErrorCode::limit_exceeded, "a read of " + count_text(bytes, "byte") +
                                                            " exceeds the limit of one frame (" +
                                                            std::to_string(wire::memory_read_bytes_max) + ")")};
  }
  return {std::move(grant), {}};
}

// A write of one range is received directly into the region if the connection guards the memory; a reply directly into
// the local memory if it is one run and needs no check.
ReceiveBuffer MemoryFrames::select(const wire::Frame& frame, std::size_t payload_bytes) {
  if (ended_) return {ReceiveBuffer::Kind::discard, {}};
  ReceiveBuffer selected;
  const auto select_request = [&](const wire::MemoryFrame& request) {
    if (request.action != number_of(MemoryAction::write) ||
        !session_.connection().capabilities().guards_receive_buffers ||
        !wire::MemoryBody::well_formed(request.action, frame.body)) {
      return;
    }
    // Connections that guard memory receive heads into memory of this process alone, so the body stays as it is.
    const wire::MemoryBody body(frame.body);
    if (body.ranges() != 1 || body.range(0).bytes != payload_bytes) return;
    Served served = check(request.action, body);
    if (served.grant == nullptr) {
      selected.kind = ReceiveBuffer::Kind::discard;
      return;
    }
    selected = {ReceiveBuffer::Kind::given, served.grant->memory().subspan(body.range(0).offset, payload_bytes),
                &arriving_};
    arriving_.grant = std::move(served.grant);
  };
  const auto select_reply = [&](const wire::MemoryReplyFrame& reply) {
    selected = select_for_reply(reply, payload_bytes);
  };
  wire::visit(frame, wire::Visitor{select_request, select_reply, [](const auto&) {}});
  return selected;
}

bool MemoryFrames::on_request(const wire::MemoryFrame& request, const wire::Frame& frame,
                              const transport::Message& message) {
  if (ended_) return true;
  if (message.cut) {
    refuse(request.call,
           refusal(ErrorCode::overloaded,
                   "there is no memory for the head of the access (receive_bytes_max): use fewer ranges"));
    return true;
  }
  if (!wire::MemoryBody::well_formed(request.action, frame.body)) return false;
  if (request.action > wire::memory_action_max) {
    refuse(request.call, refusal(ErrorCode::invalid_argument,
                                 "the owner does not know the action " + std::to_string(request.action)));
    return true;
  }
  const std::size_t ranges = wire::MemoryBody(frame.body).ranges();
  if (!wire::MemoryBody::atomic(request.action) && ranges > wire::memory_ranges_max) {
    refuse(request.call, refusal(ErrorCode::limit_exceeded, "an access of " + std::to_string(ranges) +
                                                                " ranges exceeds the limit of one frame (" +
                                                                std::to_string(wire::memory_ranges_max) + ")"));
    return true;
  }
  // The frame may lie in memory that the peer shares and can change after the checks, so everything works on a copy.
  std::array<std::byte, wire::memory_body_bytes_max> copy;  // NOLINT(*-member-init): only the part in use is filled.
  std::memcpy(copy.data(), frame.body.data(), frame.body.size());
  // Prevents the compiler from reading the frame again.
  asm volatile("" : : "r"(copy.data()) : "memory");
  const wire::MemoryBody body(Bytes(copy.data(), frame.body.size()));
  try {
    if (request.action == number_of(MemoryAction::read)) {
      if (!message.payload.empty()) return false;
      serve_read(request, body);
    } else if (request.action == number_of(MemoryAction::write)) {
      serve_write(request, body, message);
    } else {
      if (!message.payload.empty()) return false;
      serve_atomic(request, body);
    }
  } catch (const std::bad_alloc&) {
    refuse(request.call, refusal(ErrorCode::overloaded, "no memory to serve the access"));
  }
  return true;
}

// The bytes are copied while the region is entered: they must not be read after it has been revoked.
void MemoryFrames::serve_read(const wire::MemoryFrame& request, const wire::MemoryBody& body) {
  const Served served = check(request.action, body);
  if (served.grant == nullptr) return refuse(request.call, served.error);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < body.ranges(); ++i) bytes += body.range(i).bytes;
  auto owner = std::make_unique<ReplyBytes>(Buffer::allocate(bytes));
  if (!served.grant->enter()) return refuse(request.call, stale());
  std::byte* to = owner->bytes.mutable_data();
  for (std::size_t i = 0; i < body.ranges(); ++i) {
    const wire::MemoryRange range = body.range(i);
    std::memcpy(to, served.grant->memory().data() + range.offset, range.bytes);
    to += range.bytes;
  }
  served.grant->leave();
  session_.add_copied(bytes);
  const Bytes read = owner->bytes.bytes();
  if (session_.begin_frame(wire::MemoryReplyFrame{.call = request.call, .crc = request.wants_crc ? crc32c(0, read) : 0},
                           0, bytes) == nullptr) {
    if (!ended_) refuse(request.call, session_.begin_error());
    return;
  }
  const ConstBuffer piece{read.data(), read.size()};
  // Connections that copy may count a reply as sent that they still have on loan. So they get no loan: a peer could
  // otherwise read without an end and release nothing.
  const bool copies = session_.connection().capabilities().copies_only;
  end_reply(std::span(&piece, 1), copies ? nullptr : owner.release());
}

void MemoryFrames::serve_write(const wire::MemoryFrame& request, const wire::MemoryBody& body,
                               const transport::Message& message) {
  const Served served = check(request.action, body);
  if (served.grant == nullptr) return refuse(request.call, served.error);
  if (message.discarded) {
    // A revocation that is in progress refuses the bytes too.
    if (!served.grant->enter()) return refuse(request.call, stale());
    served.grant->leave();
    return refuse(request.call,
                  refusal(ErrorCode::overloaded, "there is no memory for the bytes of the write (receive_bytes_max)"));
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < body.ranges(); ++i) bytes += body.range(i).bytes;
  if (bytes != message.payload.size()) {
    return refuse(request.call,
                  refusal(ErrorCode::invalid_argument,
                          count_text(message.payload.size(), "byte") + " for ranges of " + count_text(bytes, "byte")));
  }
  if (!served.grant->enter()) return refuse(request.call, stale());
  const std::byte* from = message.payload.data();
  for (std::size_t i = 0; i < body.ranges(); ++i) {
    const wire::MemoryRange range = body.range(i);
    std::byte* const to = served.grant->memory().data() + range.offset;
    if (to != from) std::memcpy(to, from, range.bytes);  // Equal if it was received there.
    from += range.bytes;
  }
  served.grant->leave();
  session_.add_copied(bytes);
  reply(request.call, {});
  // The peer's processor may be waiting for room in its window while this one copies the next writes of this tick.
  if (!ended_ && bytes >= early_reply_bytes_min && session_.connection().capabilities().copies_only) {
    session_.connection().flush();
  }
}

// The owner's processor executes atomics of all transports, so that they are atomic against each other.
void MemoryFrames::serve_atomic(const wire::MemoryFrame& request, const wire::MemoryBody& body) {
  const Served served = check(request.action, body);
  if (served.grant == nullptr) return refuse(request.call, served.error);
  const wire::AtomicOperands operands = body.operands();
  if (!served.grant->enter()) return refuse(request.call, stale());
  std::atomic_ref<std::uint64_t> number(
      *reinterpret_cast<std::uint64_t*>(served.grant->memory().data() + operands.offset));
  std::uint64_t previous = operands.expected;
  if (request.action == number_of(MemoryAction::fetch_add)) {
    previous = number.fetch_add(operands.operand);
  } else {
    number.compare_exchange_strong(previous, operands.operand);
  }
  served.grant->leave();
  std::byte body_of_reply[sizeof previous];
  store_le(body_of_reply, previous);
  reply(request.call, body_of_reply);
}

void MemoryFrames::reply(CallId call, Bytes body) {
  std::byte* const to = session_.begin_frame(wire::MemoryReplyFrame{.call = call}, body.size(), 0);
  if (to == nullptr) return;  // The session has ended.
  if (!body.empty()) std::memcpy(to, body.data(), body.size());
  end_reply();
}

void MemoryFrames::refuse(CallId call, const Error& error) {
  // A peer that accepts short messages only receives the error without its text.
  const std::size_t room = session_.settings().agreed.send_bytes_max - wire::header_bytes;
  const Bytes text = as_bytes(std::string_view(error.text).substr(0, std::min(room, error_text_bytes_max)));
  try {
    std::byte* const to =
        session_.begin_frame(wire::MemoryReplyFrame{.call = call, .code = error.code}, text.size(), 0);
    if (to == nullptr) return;
    std::memcpy(to, text.data(), text.size());
    end_reply();
  } catch (const std::bad_alloc&) {
    session_.end_session(Error::of_connection(ErrorCode::internal, "out of memory"));
  }
}

// A peer that does not take what it reads is not read either, so that its backlog stays bounded. A peer that keeps to
// its windows is always read: it may be waiting until its replies are taken before it takes more of this side.
void MemoryFrames::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  transport::Connection& connection = session_.connection();
  const std::uint64_t before = connection.committed();
  end_frame(pieces, owner);
  if (!ended_) session_.charge_backlog();
  if (ended_) return;
  if (session_.has_room()) return unsent_replies_.clear();
  if (session_.held()) return;
  try {
    unsent_replies_.add(connection.committed(), connection.committed() - before);
  } catch (const std::bad_alloc&) {
    return session_.hold();
  }
  if (unsent_replies_.bytes(connection.sent()) <= unsent_replies_max) return;
  connection.flush();
  if (!ended_ && unsent_replies_.bytes(connection.sent()) > unsent_replies_max) session_.hold();
}

}  // namespace hawser::detail
