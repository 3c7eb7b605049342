#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/link_facts.h"
#include "transport/common/loan_memory.h"
#include "transport/common/path_numbers.h"
#include "transport/common/payload_memory.h"
#include "transport/path_proof.h"

namespace hawser::transport {

// A connection on a path whose messages are signed or encrypted (docs/wire-format.md, "Messages of a signed or sealed
// path"). It stands between the transport and the session. The first message in each direction is the proof of the path
// and passes as it is. A later message that is not the next one that the peer has sent, unchanged, ends the connection
// before the session sees a byte of it. One-sided access would have no protection, so there is none: memory is accessed
// by messages.
//
// Memory: encrypted copies of payloads that the transport has not sent yet, unless the transport has memory for them
// (PayloadMemory). They last as long as the transport needs the payload, and the owner of the payload is notified then.
// The peer's messages are decrypted into memory of the session if it has selected some, else into a block that the
// session is charged for when it keeps it.
class SealedConnection final : public Connection, public LinkFactsSource, public LoanMemory, MessageSink {
 public:
  // By which a message is longer at most.
  static constexpr std::size_t overhead_bytes = 64;
  // This side's keys change after so many bytes, which is far below the limits of AES-GCM and ChaCha20-Poly1305 for
  // messages of any length (RFC 8446, 5.5; RFC 9001, B).
  static constexpr std::uint64_t generation_bytes_max = std::uint64_t{1} << 36;
  static constexpr std::uint64_t generation_messages_max = std::uint64_t{1} << 24;

  SealedConnection(std::unique_ptr<Connection> below, std::unique_ptr<PathCipher> cipher,
                   std::uint64_t generation_bytes = generation_bytes_max,
                   std::uint64_t generation_messages = generation_messages_max);
  ~SealedConnection() override;

  std::string_view transport() const noexcept override { return below_->transport(); }
  Capabilities capabilities() const noexcept override;
  std::string peer() const override { return below_->peer(); }
  std::shared_ptr<const Identity> identity() const override { return below_->identity(); }
  std::optional<LinkFacts> link_facts() const noexcept override { return link_facts_of(below_.get()); }
  std::string link_details() const override { return link_details_of(below_.get()); }
  // Payloads that are signed only are sent from where they lie.
  Buffer loan(std::size_t bytes) override { return encrypts_ ? Buffer() : loan_of(*below_, bytes); }
  void start(MessageSink& sink) override;
  std::byte* reserve(std::size_t head_bytes) override;
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override;
  void copy_and_release(SendCompletion& owner) override;
  void revoke_receive_buffer(const std::byte* memory) noexcept override;
  std::uint64_t committed() const noexcept override { return below_->committed(); }
  std::uint64_t sent() const noexcept override { return below_->sent(); }
  std::uint64_t arrived() const noexcept override { return below_->arrived(); }
  std::size_t backlog() const noexcept override { return below_->backlog(); }
  void set_high_watermark(std::size_t bytes) noexcept override { below_->set_high_watermark(bytes); }
  void pause() noexcept override { below_->pause(); }
  void resume() override { below_->resume(); }
  bool paused() const noexcept override { return below_->paused(); }
  void flush() override { below_->flush(); }
  void close() override { below_->close(); }
  void abort() noexcept override;

 private:
  struct Loan;
  struct Prefix;
  // Memory of the session for the payload of a message that has not arrived completely.
  struct Selected {
    std::uint64_t message;
    MutableBytes memory;
    ReceiveGuard* guard;
  };

  // MessageSink
  void on_message(const Message& message) override;
  ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override;
  detail::ReceiveAccount* receive_account() noexcept override { return sink_->receive_account(); }
  void on_drained() override { sink_->on_drained(); }
  void on_closed(const Error& reason) override;

  const std::byte* send_payload(std::span<const ConstBuffer> payload, std::size_t bytes, const PathCipher::Place& place,
                                std::byte* tag, std::unique_ptr<Loan>& loan);
  const char* read_prefix(Bytes head, bool cut, Prefix& prefix) const noexcept;
  const char* open_head(const Prefix& prefix, Bytes head, bool cut, std::byte* to) noexcept;
  const char* open_payload(const Prefix& prefix, const Message& message, Message& plain, Buffer& own);
  bool affords(std::size_t bytes) noexcept;
  void refuse(const char* why);

  std::unique_ptr<Connection> below_;
  PayloadMemory* const payload_memory_;  // Null if `below_` has none.
  const std::unique_ptr<PathCipher> cipher_;
  const bool encrypts_;
  MessageSink* sink_ = nullptr;
  Loan* loans_ = nullptr;
  std::vector<Selected> selected_;
  std::vector<std::byte> head_;      // The head that is being written, if heads are encrypted.
  std::vector<std::byte> small_;     // An encrypted payload that the transport copies.
  std::vector<std::byte> received_;  // A decrypted head of at most small_head_bytes_max.
  std::vector<std::byte> asked_;     // The same, during select_receive_buffer().
  std::byte* reserved_ = nullptr;    // Memory of the transport for the message that is being written.
  SentNumbers sent_numbers_;         // The first message behind the proof has number 0.
  ReceivedNumbers received_numbers_;
  bool proof_sent_ = false;
  bool proof_received_ = false;
  bool ended_ = false;
};

}  // namespace hawser::transport
