#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "transport/ucx/protocol/link.h"
#include "transport/ucx/protocol/ucx_header.h"

namespace hawser::transport::ucx {

// Messages into active messages: those of a tick are packed side by side into packets, and large payloads go by themselves.
// Owners may do anything but destroy this when they are notified.
class Sender {
 public:
  // A tick sends early once it has produced this much, so that the peer works while we go on.
  static constexpr std::size_t early_flush_bytes = 32 * 1024;

  explicit Sender(Link& link) noexcept : link_(link) {}
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // As those of transport::Connection.
  std::byte* reserve(std::size_t head_bytes);
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner);
  void copy_and_release(SendCompletion& owner);
  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t sent() const noexcept { return sent_; }
  std::size_t backlog() const noexcept { return backlog_; }

  // From now on messages may be sent. Says so to the peer as soon as there is an endpoint.
  void open();
  // The link has an endpoint now.
  void on_endpoint();
  // At the end of a tick: everything that was committed, as far as the peer's window has room.
  void flush();
  // Packets that are complete.
  void send_ready();
  // All that was sent so far is on its way: UCX needs no progress for it.
  bool under_way() const noexcept;
  // The end of the connection follows all messages.
  void close();
  // A send has ended. Gives it back.
  void on_ended(UcxOperation& operation) noexcept;
  // The connection has ended: drops what is not with UCX. Returns the owners that are to be notified.
  std::vector<SendCompletion*> end();

 private:
  // The entries of one active message.
  struct Packet {
    Block* block = nullptr;  // A reference of ours; null for an end.
    std::size_t begin = 0;
    std::size_t size = 0;
    std::size_t counted = 0;  // Of its messages, without payloads that go by themselves.
  };
  // A payload that goes by itself: buffers of its owner's, or what `block`, a reference of ours, keeps.
  struct Payload {
    std::vector<ConstBuffer> buffers;
    SendCompletion* owner = nullptr;
    Block* block = nullptr;
    const std::byte* data = nullptr;
    std::size_t size = 0;
    std::uint32_t packet = 0;  // The index of the packet that announces it.
  };

  void make_room(std::size_t bytes);
  void seal_up_to(std::size_t position);
  void send_packet(const Packet& packet);
  std::size_t registered_bytes_min();
  Block* retain_registered(std::span<const ConstBuffer> payload, std::size_t payload_bytes);
  static void copy(Payload& payload);
  void send_payload(Payload payload);
  void send_bare(UcxHeader::Kind kind);
  void hand_over(UcxOperation& operation, UcxHeader::Kind kind, std::uint32_t index, const std::byte* data,
                 std::size_t size, std::uint32_t flags);
  void finished(UcxOperation& operation) noexcept;
  void recycle(UcxOperation& operation) noexcept;

  Link& link_;
  Block* block_ = nullptr;  // Being filled: [begin_, used_) is the packet that is open.
  std::size_t begin_ = 0;
  std::size_t used_ = 0;
  std::size_t open_counted_ = 0;
  std::deque<Packet> packets_;
  std::deque<Payload> payloads_;
  std::uint32_t packets_sealed_ = 0;  // The index of the one that is open.
  std::uint32_t packets_sent_ = 0;
  std::uint32_t payloads_sent_ = 0;
  std::size_t payloads_in_flight_ = 0;
  std::size_t registered_bytes_min_ = 0;  // 0: not known yet.
  Operations operations_;
  std::uint64_t committed_ = 0;
  std::uint64_t sent_ = 0;
  std::size_t waiting_ = 0;  // Bytes since the last send.
  std::size_t backlog_ = 0;
  bool opened_ = false;
  bool sending_now_ = false;
  bool closing_ = false;
  bool ended_ = false;
};

}  // namespace hawser::transport::ucx
