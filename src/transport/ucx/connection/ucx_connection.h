#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/timer.h"
#include "transport/common/backlog_watermark.h"
#include "transport/common/liveness.h"
#include "transport/common/payload_buffer.h"
#include "transport/transport.h"
#include "transport/ucx/core/ucx_worker.h"

namespace hawser::transport {

// What both sides of a connection tell each other.
struct UcxPeer {
  std::uint64_t token = 0;       // Its name for the connection.
  std::size_t window_bytes = 0;  // What may be under way to it.
  std::size_t rendezvous_bytes_min = 0;
};

// Messages over UCX's active messages (docs/transports/ucx.md). Receives from when it is made, sends from open() on.
class UcxConnection final : public Connection, UcxReceiver, exec::TickEnd {
 public:
  // Of large payloads that come before it is their turn, so much is fetched ahead.
  static constexpr std::size_t ahead_bytes_max = std::size_t{512} << 10;
  // Active messages that may overtake each other: with several rails they do.
  static constexpr std::size_t overtaking_max = 4096;
  // A tick sends early once it has produced this much, so that the peer works while we go on.
  static constexpr std::size_t early_flush_bytes = 32 * 1024;
  // How long flush() waits for UCX to take what it was given, and how long while it is still wiring up.
  static constexpr Duration flush_max = std::chrono::milliseconds(20);
  static constexpr Duration first_flush_max = std::chrono::seconds(1);

  // How long a broken endpoint waits for the stream's end, which would say that the peer is gone.
  static constexpr Duration break_grace = std::chrono::milliseconds(50);

  static Result<std::unique_ptr<UcxConnection>> make(std::shared_ptr<UcxWorker> worker, const MessageLimits& limits);
  ~UcxConnection();

  std::uint64_t token() const noexcept { return token_; }
  // Once each, in any order but before open() for the peer.
  void set_peer(const UcxPeer& peer) noexcept { peer_ = peer; }
  void set_endpoint(std::unique_ptr<UcxEndpoint> endpoint);
  bool has_endpoint() const noexcept { return endpoint_ != nullptr; }
  void open(std::unique_ptr<Stream> stream);

  std::string_view transport() const noexcept override { return "ucx"; }
  Capabilities capabilities() const noexcept override;
  std::string peer() const override { return liveness_ ? liveness_->peer() : peer_name_; }
  void start(MessageSink& sink) override;
  std::byte* reserve(std::size_t head_bytes) override;
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override;
  void copy_and_release(SendCompletion& owner) override;
  void revoke_receive_buffer(const std::byte* memory) noexcept override;
  std::uint64_t committed() const noexcept override { return committed_; }
  std::uint64_t sent() const noexcept override { return sent_; }
  std::uint64_t arrived() const noexcept override { return arrived_; }
  std::size_t backlog() const noexcept override { return backlog_; }
  // Bytes of payloads that are being fetched, or are fetched and not delivered: bounds how far is read ahead.
  std::size_t ahead_bytes() const noexcept { return ahead_bytes_; }
  void set_high_watermark(std::size_t bytes) noexcept override { watermark_.set(bytes, backlog_); }
  void pause() noexcept override { paused_ = true; }
  void resume() override;
  bool paused() const noexcept override { return paused_; }
  void flush() override;
  void close() override;
  void abort() noexcept override;

 private:
  // One active message's worth of entries.
  struct Packet {
    Block* block = nullptr;  // A reference of ours; null for an end.
    std::size_t begin = 0;
    std::size_t size = 0;
    std::size_t counted = 0;  // Of its messages, without what goes by itself.
  };
  // A payload that goes by itself: pieces that are lent, or what `block`, a reference of ours, keeps.
  struct Outgoing {
    std::vector<ConstBuffer> pieces;
    SendCompletion* owner = nullptr;
    Block* block = nullptr;
    const std::byte* data = nullptr;
    std::size_t size = 0;
    std::uint32_t packet = 0;  // The index of the packet that announces it.
  };
  struct IncomingMessage {
    enum class State : std::uint8_t { announced, fetching, here, lost };
    Bytes head;
    Bytes payload;           // Of a message that is whole.
    Block* block = nullptr;  // A reference of ours to what holds both.
    std::size_t cost = 0;    // Of the packet that this is the last of.
    bool apart = false;
    bool asked = false;  // select_receive_buffer() has been.
    State state = State::announced;
    std::uint32_t number = 0;  // Of the payload.
    std::size_t size = 0;
    PayloadBuffer fetched;              // Of a payload that comes by itself.
    UcxOperation* operation = nullptr;  // While it is fetched.
  };
  // A packet that is next in order, and how far it has been read.
  struct Arrived {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Block* block = nullptr;
    bool end = false;
    std::size_t at = 0;
  };
  struct WireUp final : Timer {
    explicit WireUp(UcxConnection& owner) noexcept : Timer(&WireUp::fire), connection(owner) {}
    static void fire(Timer& timer) noexcept;
    UcxConnection& connection;
  };

  UcxConnection(std::shared_ptr<UcxWorker> worker, const MessageLimits& limits);

  // Sending (ucx_send.cpp).
  void on_tick_end() override { send_queued(); }
  void make_room(std::size_t bytes);
  void seal_up_to(std::size_t end);
  void send_queued();
  void send_ready();
  void send_packet(const Packet& packet);
  std::size_t registered_bytes_min();
  Block* retain_registered(std::span<const ConstBuffer> payload, std::size_t payload_bytes);
  static void copy(Outgoing& outgoing);
  void send_payload(Outgoing outgoing);
  void send_bare(UcxHeader::Kind kind);
  void hand_over(UcxOperation& operation, UcxHeader::Kind kind, std::uint32_t index, const std::byte* data,
                 std::size_t size, std::uint32_t flags);
  void finished(UcxOperation& operation) noexcept;
  void recycle(UcxOperation& operation) noexcept;
  void drained();
  void track(UcxOperation& operation);
  void forget(UcxOperation& operation) noexcept;

  void connected(std::unique_ptr<UcxEndpoint> endpoint) override;

  // Receiving (ucx_receive.cpp).
  void arrived(const ActiveMessage& arrival) override { arrivals_.push_back(arrival); }
  void ended(UcxOperation& operation) override;
  void process() override;
  void receive_messages();
  bool receive(ActiveMessage& arrival);
  bool receive_packet(ActiveMessage& arrival);
  void deliver();
  bool read_entry();
  bool deliver_front();
  bool settle_payload(IncomingMessage& front);
  void look_ahead();
  std::optional<UcxEntry> next_entry();
  void queue_entry(const UcxEntry& entry);
  bool fetch(IncomingMessage& incoming);
  void fetched(UcxOperation& operation);
  void drop_received() noexcept;
  static void release(Block* block) noexcept {
    if (block != nullptr) block->release();
  }
  void release(ActiveMessage& arrival) noexcept;

  // The end.
  void stream_ended(const Error& reason);
  void broken(std::string_view what, ucs_status_t status);
  // The sink has paused, and nothing that waits to be sent asks for an end before it resumes.
  bool held_back() const noexcept { return paused_ && backlog_ == 0; }
  void fail(Error reason);
  void protocol_violation(std::string text);

  const std::shared_ptr<UcxWorker> worker_;
  Loop& loop_;
  const MessageLimits limits_;
  std::uint64_t token_ = 0;
  UcxPeer peer_;
  std::unique_ptr<UcxEndpoint> endpoint_;
  std::shared_ptr<Liveness> liveness_;
  std::shared_ptr<UcxConnection*> self_;  // Null within, once the stream has nobody to tell.
  std::string peer_name_;
  MessageSink* sink_ = nullptr;
  hawser::detail::ReceiveAccount* account_ = nullptr;
  WireUp wire_up_{*this};  // Until the peer is heard; then, once UCX has lost it, until the stream has had its time.
  bool opened_ = false;
  bool heard_ = false;  // The peer's first sign over UCX.

  Block* block_ = nullptr;  // Being filled: [begin_, used_) is the packet that is open.
  std::size_t begin_ = 0;
  std::size_t used_ = 0;
  std::size_t open_counted_ = 0;
  std::deque<Packet> packets_;
  std::deque<Outgoing> payloads_;
  std::uint32_t packets_sealed_ = 0;  // The index of the one that is open.
  std::uint32_t packets_sent_ = 0;
  std::uint32_t payloads_sent_ = 0;
  std::size_t payloads_in_flight_ = 0;
  std::size_t registered_bytes_min_ = 0;   // 0: not known yet.
  std::vector<UcxOperation*> operations_;  // With UCX.
  std::uint64_t spent_ = 0;                // Of the peer's window.
  std::uint64_t granted_ = 0;              // What the peer has said to have taken.
  std::uint64_t committed_ = 0;
  std::uint64_t sent_ = 0;
  std::size_t waiting_ = 0;  // Bytes since the last send.
  std::size_t backlog_ = 0;
  BacklogWatermark watermark_;
  bool sending_now_ = false;
  bool finishing_ = false;

  std::vector<ActiveMessage> arrivals_;  // As they came.
  std::vector<ActiveMessage> taking_;
  std::map<std::uint32_t, ActiveMessage> early_;  // Overtook others.
  std::deque<Arrived> in_order_;
  std::deque<IncomingMessage> incoming_;               // Read, and waiting for a payload, or behind one that does.
  std::map<std::uint32_t, ActiveMessage> rendezvous_;  // Payloads that nobody has asked for yet.
  std::uint32_t expected_ = 0;
  std::uint32_t payloads_announced_ = 0;
  std::uint32_t payloads_taken_ = 0;
  std::size_t ahead_ = 0;        // Announced payloads that are read.
  std::size_t ahead_bytes_ = 0;  // Of those that are fetched.
  std::uint64_t received_cost_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t announced_ = 0;
  std::uint64_t arrived_ = 0;
  bool paused_ = false;
  bool processing_ = false;
  bool ended_ = false;
  std::optional<Error> stream_end_;
  std::optional<Error> broken_;
};

}  // namespace hawser::transport
