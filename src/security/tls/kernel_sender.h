#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hawser/loop.h"
#include "hawser/timer.h"
#include "hawser/transport/stream.h"
#include "os/kernel_tls.h"
#include "security/tls/session.h"
#include "security/tls/shared.h"

namespace hawser::security::tls {

// Lets the kernel encrypt what one stream sends (kTLS). Loop's thread only.
class KernelSender {
 public:
  class Owner {
   public:
    // Time to call finish() again.
    virtual void on_kernel_retry() noexcept = 0;

   protected:
    ~Owner() = default;
  };
  explicit KernelSender(Owner& owner) noexcept : owner_(owner) {}

  // begin() shall be called as soon as the socket has accepted everything that OpenSSL has written.
  void want() noexcept { wanted_ = true; }
  bool wanted() const noexcept { return wanted_; }
  void give_up() noexcept { wanted_ = false; }
  // Gives the keys of this side to the kernel. If that fails, OpenSSL goes on; an error: then the connection must end.
  Result<void> begin(TlsShared& shared, Loop& loop, int socket, TlsSession& session);
  // The kernel encrypts.
  bool begun() const noexcept { return kernel_.begun(); }
  std::string details() const;

  // Sends `pieces` on the stream below, and returns how many bytes were accepted. An error: the key is used up, and
  // the connection must end.
  Result<std::size_t> send(transport::Stream& below, std::span<const ConstBuffer> pieces, TlsSession& session);
  // The stream below has accepted so many bytes of what it had not accepted before.
  void count(std::size_t bytes) noexcept { kernel_.count(bytes, 1); }
  // Sends an alert that OpenSSL would have sent, after which the connection ends.
  void send_alert(WriteNotes& notes) noexcept;
  // Sends close_notify. True: all has been sent, so that the stream below can end. False: the owner is called later.
  bool finish(Loop& loop, WriteNotes& notes) noexcept;
  void stop() noexcept { timer_.stop(); }
  // Bytes that the kernel has not passed to the queue of TCP.
  std::size_t unsent() const noexcept { return static_cast<std::size_t>(kernel_.held_bytes()); }

 private:
  // The kernel does not report when it has sent all records, so it is asked.
  static constexpr Duration pause_min = std::chrono::milliseconds(1);
  static constexpr Duration pause_max = std::chrono::milliseconds(64);
  static constexpr std::uint64_t blocks_per_record = 1024;  // In a full record, of 16 bytes each.

  void on_timer() noexcept { owner_.on_kernel_retry(); }

  Owner& owner_;
  bool wanted_ = false;
  std::string problem_;  // Why the kernel does not encrypt; empty: it does, or is not asked to.
  KernelTls kernel_;
  Duration pause_ = pause_min;
  MemberTimer<&KernelSender::on_timer> timer_{*this};
};

}  // namespace hawser::security::tls
