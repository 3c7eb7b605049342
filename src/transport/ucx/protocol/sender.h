#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "transport/ucx/protocol/link.h"
#include "transport/ucx/protocol/packet_writer.h"
#include "transport/ucx/protocol/ucx_header.h"

namespace hawser::transport::ucx {

// Converts messages to active messages. The messages of a tick are packed into packets; a large payload is sent in an
// active message of its own. When a SendCompletion is notified, it may do anything except destroy the sender.
class UcxSender {
 public:
  // The sender does not wait for the end of the tick once this many bytes are committed, so that the peer can start.
  static constexpr std::size_t early_flush_bytes = 32 * 1024;

  explicit UcxSender(UcxLink& link) : link_(link) {}
  UcxSender(const UcxSender&) = delete;
  UcxSender& operator=(const UcxSender&) = delete;

  // The same contracts as in transport::Connection.
  std::byte* reserve(std::size_t head_bytes);
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner);
  void copy_and_release(SendCompletion& owner);
  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t sent() const noexcept { return sent_; }
  std::size_t backlog() const noexcept { return backlog_; }

  // Allows messages to be sent. Sends a hello to the peer as soon as there is an endpoint.
  void open();
  // Must be called when the link has received its endpoint.
  void on_endpoint();
  // Called at the end of a tick: sends everything that was committed, as far as the peer's window has room.
  void flush();
  // Sends the packets that are complete, as far as the peer's window has room.
  void send_ready();
  // Returns true when UCX needs no progress for anything that was sent so far.
  bool under_way() const noexcept;
  // Sends a fin after all messages.
  void close();
  // A send has completed. Recycles the operation.
  void on_ended(UcxOperation& operation) noexcept;
  // The connection has ended: drops what has not been handed to UCX. Returns the completions that must be notified.
  std::vector<SendCompletion*> end();

 private:
  // A payload with an active message of its own. Its bytes lie in `buffers`, which belong to `owner`, or in `block`,
  // of which the payload owns one reference.
  struct Payload {
    std::vector<ConstBuffer> buffers;
    SendCompletion* owner = nullptr;
    Block* block = nullptr;
    const std::byte* data = nullptr;
    std::size_t size = 0;
    std::uint32_t packet = 0;  // The index of the packet that announces it.
  };

  void send_packet(const PacketWriter::Packet& packet);
  std::size_t registered_bytes_min();
  Block* retain_kept(std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion& owner);
  static void copy(Payload& payload);
  void send_payload(Payload payload);
  void send_bare(UcxHeader::Kind kind);
  void hand_over(UcxOperation& operation, UcxHeader::Kind kind, std::uint32_t index, const std::byte* data,
                 std::size_t size, std::uint32_t flags);
  void finished(UcxOperation& operation) noexcept;
  void recycle(UcxOperation& operation) noexcept;

  UcxLink& link_;
  PacketWriter packets_;
  std::deque<Payload> payloads_;
  std::uint32_t packets_sent_ = 0;
  std::uint32_t payloads_sent_ = 0;
  std::size_t payloads_in_flight_ = 0;
  std::size_t registered_bytes_min_ = 0;  // 0: not known yet.
  Operations operations_;
  std::uint64_t committed_ = 0;
  std::uint64_t sent_ = 0;
  std::size_t waiting_ = 0;  // Bytes committed since the last send.
  std::size_t backlog_ = 0;
  bool opened_ = false;
  bool sending_now_ = false;
  bool closing_ = false;
  bool ended_ = false;
};

}  // namespace hawser::transport::ucx
