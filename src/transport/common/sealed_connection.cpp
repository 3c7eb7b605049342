#include "transport/common/sealed_connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/little_endian.h"
#include "hawser/detail/receive_account.h"
#include "transport/common/gather.h"

namespace hawser::transport {
namespace {

constexpr std::size_t tag_bytes = PathCipher::tag_bytes;
// Generation and number, length of the head, length of the payload, tag of the payload. The tag of the head's first
// part is behind them, and it covers them.
constexpr std::size_t covered_bytes = 8 + 4 + 4 + tag_bytes;
constexpr std::size_t sealed_prefix_bytes = covered_bytes + tag_bytes;
// The first part of a head has a tag of its own, because a transport may pass on only the beginning of a head (at least
// 4 KiB of it) when memory is short.
constexpr std::size_t first_part_bytes_max = 4096 - sealed_prefix_bytes;
static_assert(sealed_prefix_bytes + tag_bytes == SealedConnection::overhead_bytes);

constexpr std::size_t small_head_bytes_max = 4096;
// Encrypted payloads up to this size are copied by the transport.
constexpr std::size_t small_payload_bytes_max = 8 * 1024;
// Memory for heads that stays allocated between messages.
constexpr std::size_t kept_bytes_max = 64 * 1024;
// The parts of a message.
enum Part : std::uint8_t { first_part, rest_part, payload_part };

constexpr PathCipher::Place place_of(const PathNumber& number, Part part) noexcept {
  return {.generation = number.generation, .message = number.message, .part = part};
}

constexpr std::size_t rest_tag_bytes(std::size_t head_bytes) noexcept {
  return head_bytes > first_part_bytes_max ? tag_bytes : 0;
}

// Makes `memory` at least `bytes` long.
std::byte* room(std::vector<std::byte>& memory, std::size_t bytes) {
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}
void limit(std::vector<std::byte>& memory) noexcept {
  if (memory.capacity() > kept_bytes_max) std::vector<std::byte>().swap(memory);
}

}  // namespace

struct SealedConnection::Prefix {
  PathNumber number;
  std::size_t head_bytes = 0;
  std::size_t payload_bytes = 0;
};

// An encrypted payload until the transport has sent it.
struct SealedConnection::Loan final : SendCompletion {
  Loan(SealedConnection& connection, Buffer bytes) noexcept
      : of(&connection), sealed(std::move(bytes)), next(connection.loans_) {
    if (next != nullptr) next->before = this;
    connection.loans_ = this;
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  ~Loan() {
    if (next != nullptr) next->before = before;
    if (before != nullptr) {
      before->next = next;
    } else if (of != nullptr) {
      of->loans_ = next;
    }
  }
  void on_send_complete() noexcept override {
    SendCompletion* const notified = owner;
    delete this;
    if (notified != nullptr) notified->on_send_complete();
  }

  SealedConnection* of;  // Null after its end.
  const Buffer sealed;
  SendCompletion* owner = nullptr;
  Loan* next;
  Loan* before = nullptr;
};

SealedConnection::SealedConnection(std::unique_ptr<Connection> below, std::unique_ptr<PathCipher> cipher,
                                   std::uint64_t generation_bytes, std::uint64_t generation_messages)
    : below_(std::move(below)),
      payload_memory_(dynamic_cast<PayloadMemory*>(below_.get())),
      cipher_(std::move(cipher)),
      encrypts_(cipher_->encrypts()),
      sent_numbers_(generation_bytes, generation_messages) {}

SealedConnection::~SealedConnection() {
  below_.reset();
  for (Loan* loan = loans_; loan != nullptr; loan = loan->next) loan->of = nullptr;
}

Capabilities SealedConnection::capabilities() const noexcept {
  Capabilities all = below_->capabilities();
  all.head_bytes_max -= overhead_bytes;
  all.message_bytes_max -= overhead_bytes;
  all.gathers = all.gathers && !encrypts_;
  all.remote_memory = false;
  return all;
}

void SealedConnection::start(MessageSink& sink) {
  sink_ = &sink;
  below_->start(*this);
}

// ---- Sending ----

std::byte* SealedConnection::reserve(std::size_t head_bytes) {
  if (!proof_sent_) return below_->reserve(head_bytes);
  reserved_ = below_->reserve(sealed_prefix_bytes + head_bytes + rest_tag_bytes(head_bytes));
  if (reserved_ == nullptr) return nullptr;
  // Memory of the transport may be shared with another process, so that nothing is written there before it is
  // encrypted.
  return encrypts_ ? room(head_, head_bytes) : reserved_ + sealed_prefix_bytes;
}

void SealedConnection::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  if (!std::exchange(proof_sent_, true)) return below_->commit(head_bytes, payload, owner);
  const std::size_t payload_bytes = total_bytes(payload);
  const PathNumber number = sent_numbers_.next(*cipher_);
  std::byte* const prefix = reserved_;
  store_le<std::uint64_t>(prefix, number.encoded());
  store_le<std::uint32_t>(prefix + 8, static_cast<std::uint32_t>(head_bytes));
  store_le<std::uint32_t>(prefix + 12, static_cast<std::uint32_t>(payload_bytes));
  std::byte* const payload_tag = prefix + 16;
  std::memset(payload_tag, 0, tag_bytes);
  std::unique_ptr<Loan> loan;
  const std::byte* sealed_payload = nullptr;
  if (payload_bytes != 0)
    sealed_payload = send_payload(payload, payload_bytes, place_of(number, payload_part), payload_tag, loan);

  const std::size_t first = std::min(head_bytes, first_part_bytes_max);
  const std::byte* const head = encrypts_ ? head_.data() : prefix + sealed_prefix_bytes;
  std::byte* const to = prefix + sealed_prefix_bytes;
  const auto seal_part = [&](Part part, Bytes context, Bytes plain, std::byte* sealed, std::byte* tag) {
    const ConstBuffer piece{plain.data(), plain.size()};
    cipher_->seal(place_of(number, part), context, std::span(&piece, 1), sealed, tag);
  };
  seal_part(first_part, {prefix, covered_bytes}, {head, first}, to, prefix + covered_bytes);
  if (first < head_bytes) seal_part(rest_part, {}, {head + first, head_bytes - first}, to + first, to + head_bytes);
  limit(head_);
  sent_numbers_.sent(head_bytes + payload_bytes);
  reserved_ = nullptr;

  const std::size_t sealed_head_bytes = sealed_prefix_bytes + head_bytes + rest_tag_bytes(head_bytes);
  if (!encrypts_ || payload_bytes == 0) return below_->commit(sealed_head_bytes, payload, owner);
  if (loan == nullptr) {
    const ConstBuffer piece{sealed_payload, payload_bytes};
    below_->commit(sealed_head_bytes, std::span(&piece, 1), nullptr);
    if (owner != nullptr) owner->on_send_complete();
    return;
  }
  const ConstBuffer lent{sealed_payload, payload_bytes};
  loan->owner = owner;
  Loan* const lender = loan.release();  // Destroys itself when it is notified, which may be before commit() returns.
  try {
    below_->commit(sealed_head_bytes, std::span(&lent, 1), lender);
  } catch (...) {
    delete lender;
    throw;
  }
}

// Signs the payload, or encrypts it to small_, to memory of the transport, or into a loan. Returns the encrypted one.
const std::byte* SealedConnection::send_payload(std::span<const ConstBuffer> payload, std::size_t bytes,
                                                const PathCipher::Place& place, std::byte* tag,
                                                std::unique_ptr<Loan>& loan) {
  std::byte* to = nullptr;
  Buffer lent;
  if (encrypts_ && bytes <= small_payload_bytes_max) {
    to = room(small_, bytes);
  } else if (encrypts_) {
    if (payload_memory_ != nullptr) to = payload_memory_->reserve_payload(bytes);
    if (to == nullptr) {
      lent = Buffer::allocate(bytes);
      to = lent.mutable_data();
    }
  }
  cipher_->seal(place, {}, payload, to, tag);
  if (lent.size() != 0) loan = std::make_unique<Loan>(*this, std::move(lent));
  return to;
}

void SealedConnection::copy_and_release(SendCompletion& owner) {
  if (!encrypts_) return below_->copy_and_release(owner);
  for (Loan* loan = loans_; loan != nullptr; loan = loan->next) {
    if (loan->owner == &owner) loan->owner = nullptr;
  }
}

void SealedConnection::abort() noexcept {
  ended_ = true;
  selected_.clear();
  below_->abort();
}

// ---- Receiving ----

// Returns why the prefix is none; null if it is one.
const char* SealedConnection::read_prefix(Bytes head, bool cut, Prefix& prefix) const noexcept {
  if (head.size() < sealed_prefix_bytes) return "it is shorter than its prefix";
  prefix.number = received_numbers_.decode(load_le<std::uint64_t>(head.data()));
  prefix.head_bytes = load_le<std::uint32_t>(head.data() + 8);
  prefix.payload_bytes = load_le<std::uint32_t>(head.data() + 12);
  const std::size_t all = sealed_prefix_bytes + prefix.head_bytes + rest_tag_bytes(prefix.head_bytes);
  const std::size_t here = cut ? std::min(all, sealed_prefix_bytes + first_part_bytes_max) : all;
  if (cut ? head.size() < here : head.size() != here) return "its length is not the stated one";
  return received_numbers_.has_keys(prefix.number.generation) ? nullptr : "it has keys that were not agreed on";
}

// Decrypts the head to `to`, or its first part if it is cut. Returns why it is not the peer's; null if it is.
const char* SealedConnection::open_head(const Prefix& prefix, Bytes head, bool cut, std::byte* to) noexcept {
  const std::size_t first = std::min(prefix.head_bytes, first_part_bytes_max);
  const Bytes sealed = head.subspan(sealed_prefix_bytes);
  bool sound = cipher_->open(place_of(prefix.number, first_part), head.first(covered_bytes), sealed.first(first), to,
                             head.data() + covered_bytes);
  if (sound && !cut && first < prefix.head_bytes) {
    sound = cipher_->open(place_of(prefix.number, rest_part), {}, sealed.subspan(first, prefix.head_bytes - first),
                          to == nullptr ? nullptr : to + first, sealed.data() + prefix.head_bytes);
  }
  return sound ? nullptr : "its tag is wrong: somebody has changed or forged it";
}

bool SealedConnection::affords(std::size_t bytes) noexcept {
  detail::ReceiveAccount* const account = sink_->receive_account();
  if (account == nullptr) return true;
  if (!account->acquire(bytes)) return false;
  account->release(bytes);  // Whoever keeps the memory is charged for it.
  return true;
}

ReceiveBuffer SealedConnection::select_receive_buffer(Bytes head, std::size_t payload_bytes) {
  if (!proof_received_) return sink_->select_receive_buffer(head, payload_bytes);
  const ReceiveBuffer discard{ReceiveBuffer::Kind::discard, {}};
  if (ended_) return discard;
  Prefix prefix;
  const char* why = read_prefix(head, false, prefix);
  if (why == nullptr && prefix.payload_bytes != payload_bytes) why = "its length is not the stated one";
  // Transports may ask for several payloads before the first of them is complete.
  if (why == nullptr && received_numbers_.order(prefix.number) == ReceivedNumbers::Order::repeated) {
    why = "it is a repeated one";
  }
  std::vector<std::byte> large;
  std::byte* to = nullptr;
  if (why == nullptr && encrypts_) {
    if (prefix.head_bytes > small_head_bytes_max && !affords(prefix.head_bytes)) return discard;
    to = room(prefix.head_bytes > small_head_bytes_max ? large : asked_, prefix.head_bytes);
  }
  if (why == nullptr) why = open_head(prefix, head, false, to);
  if (why != nullptr) {
    refuse(why);
    return discard;
  }
  const Bytes plain = encrypts_ ? Bytes(to, prefix.head_bytes) : head.subspan(sealed_prefix_bytes, prefix.head_bytes);
  const ReceiveBuffer selected = sink_->select_receive_buffer(plain, payload_bytes);
  if (ended_) return discard;
  if (selected.kind == ReceiveBuffer::Kind::given) {
    selected_.push_back({prefix.number.message, selected.memory.first(payload_bytes), selected.guard});
  }
  return selected;
}

void SealedConnection::revoke_receive_buffer(const std::byte* memory) noexcept {
  std::erase_if(selected_, [memory](const Selected& one) { return one.memory.data() == memory; });
  below_->revoke_receive_buffer(memory);
}

void SealedConnection::on_message(const Message& message) {
  if (!std::exchange(proof_received_, true)) return sink_->on_message(message);
  if (ended_) return;
  Prefix prefix;
  const char* why = read_prefix(message.head, message.cut, prefix);
  if (why == nullptr) {
    switch (received_numbers_.order(prefix.number)) {
      case ReceivedNumbers::Order::next: break;
      case ReceivedNumbers::Order::ahead: why = "the one before it is missing"; break;
      case ReceivedNumbers::Order::repeated: why = "it is a repeated one"; break;
    }
  }
  if (why != nullptr) return refuse(why);

  Message plain{.head = message.head.subspan(sealed_prefix_bytes),
                .payload = {},
                .head_block = message.head_block,
                .payload_block = nullptr,
                .discarded = message.discarded,
                .cut = message.cut};
  // A large head is decrypted only as far as the account allows.
  plain.cut |= encrypts_ && prefix.head_bytes > small_head_bytes_max && !affords(prefix.head_bytes);
  const std::size_t head_bytes = plain.cut ? std::min(prefix.head_bytes, first_part_bytes_max) : prefix.head_bytes;
  plain.discarded |= plain.cut;
  Buffer large;
  std::byte* to = nullptr;
  if (encrypts_ && head_bytes > small_head_bytes_max) {
    large = Buffer::allocate(head_bytes);
    to = large.mutable_data();
  } else if (encrypts_) {
    to = room(received_, head_bytes);
  }
  why = open_head(prefix, message.head, plain.cut, to);
  if (why != nullptr) return refuse(why);
  plain.head = encrypts_ ? Bytes(to, head_bytes) : plain.head.first(head_bytes);
  if (encrypts_) plain.head_block = large.block();

  Buffer own;
  why = open_payload(prefix, message, plain, own);
  if (why != nullptr) return refuse(why);
  received_numbers_.received(prefix.number.generation, *cipher_);
  sink_->on_message(plain);
}

// Returns why the payload is not the peer's; null if it is, or is discarded.
const char* SealedConnection::open_payload(const Prefix& prefix, const Message& message, Message& plain, Buffer& own) {
  ReceiveGuard* guard = nullptr;
  bool given = false;
  for (auto at = selected_.begin(); at != selected_.end(); ++at) {
    if (at->message != prefix.number.message) continue;
    given = at->memory.data() == message.payload.data();
    guard = given ? at->guard : nullptr;
    selected_.erase(at);
    break;
  }
  if (plain.discarded) return nullptr;
  const std::size_t bytes = message.payload.size();
  if (bytes != prefix.payload_bytes) return "its length is not the stated one";
  if (bytes == 0) return nullptr;
  const std::byte* const tag = message.head.data() + covered_bytes - tag_bytes;
  plain.payload = message.payload;
  plain.payload_block = message.payload_block;
  std::byte* to = nullptr;
  if (encrypts_ && given) {
    to = const_cast<std::byte*>(message.payload.data());  // Memory that the session has given to be written.
  } else if (encrypts_) {
    if (!affords(bytes)) {
      plain.discarded = true;
      plain.payload = {};
      plain.payload_block = nullptr;
      return nullptr;
    }
    own = Buffer::allocate(bytes);
    to = own.mutable_data();
    plain.payload = own.bytes();
    plain.payload_block = own.block();
  }
  if (guard != nullptr && !guard->enter()) {
    plain.discarded = true;
    plain.payload = {};
    return nullptr;
  }
  const bool sound = cipher_->open(place_of(prefix.number, payload_part), {}, message.payload, to, tag);
  if (guard != nullptr) guard->leave();
  return sound ? nullptr : "the tag of its payload is wrong: somebody has changed it";
}

void SealedConnection::on_closed(const Error& reason) {
  ended_ = true;
  selected_.clear();
  sink_->on_closed(reason);
}

void SealedConnection::refuse(const char* why) {
  if (ended_) return;
  cipher_->count_refused();
  const Error reason =
      Error::of_transport(Initiator::peer, ErrorCode::unavailable,
                          "message " + std::to_string(received_numbers_.next()) + " on the path over " +
                              std::string(below_->transport()) + " is not what the peer has sent: " + why);
  abort();
  sink_->on_closed(reason);
}

}  // namespace hawser::transport
