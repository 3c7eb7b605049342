#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "security/tls/stream.h"
#include "transport/common/socket_source.h"

// The part of TlsStream that lets the kernel encrypt.
namespace hawser::security::tls {

// A trial that failed for want of descriptors or memory is repeated by the next handshake.
void TlsShared::examine_kernel() {
  if (kernel_known_.load(std::memory_order_acquire)) return;
  const std::lock_guard trying(kernel_trial_mutex_);
  if (kernel_known_.load(std::memory_order_acquire)) return;
  // Each handshake would wait.
  if (std::chrono::steady_clock::now() < kernel_trial_next_) return;
  auto found = std::make_shared<const KernelSupport>(security::tls::examine_kernel());
  const bool known = !found->passing;
  if (found->timed_out) kernel_trial_next_ = std::chrono::steady_clock::now() + kernel_trial_pause;
  {
    const std::lock_guard lock(kernel_mutex_);
    kernel_support_.swap(found);
  }
  kernel_known_.store(known, std::memory_order_release);
}

void TlsShared::examine_kernel_later() {
  struct Trial final : detail::Posted {
    explicit Trial(TlsShared& of) noexcept : shared(of) {}
    void run() override {
      try {
        shared.examine_kernel();
      } catch (const std::exception&) {
        // The first handshake tries it.
      }
    }
    TlsShared& shared;  // Its pool, which runs this, ends before it.
  };
  if (pool == nullptr) return examine_kernel();
  pool->submit(this, std::make_unique<Trial>(*this));
}

std::shared_ptr<const KernelSupport> TlsShared::kernel_support() const {
  const std::lock_guard lock(kernel_mutex_);
  return kernel_support_;
}

// Gives the keys of this side to the kernel when everything that OpenSSL has written has been accepted by the socket.
// Called after the handshake.
void TlsStream::begin_kernel() {
  TlsSession& session = *step_->session;
  if (!kernel_wanted_ || below_blocked_ || !sending_.empty() || !session.output().empty()) return;
  kernel_wanted_ = false;
  if (ended_ || finish_wanted_) return;
  const KernelBegun begun = security::tls::begin_kernel(kernel_, transport::tcp_socket_of(stream_.get()), session.ssl(),
                                                        session.notes(), *shared_->kernel_support());
  if (begun.refusal == KernelRefusal::none) {
    session.notes().dropped = true;
    shared_->kernel_begun.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  kernel_problem_ = begun.problem;
  shared_->kernel_refused.fetch_add(1, std::memory_order_relaxed);
  if (shared_->kernel == TlsKernel::required) {
    return end(Error::of_connection(ErrorCode::unavailable,
                                    "TlsKernel::required: " + begun.problem + ", or set TlsKernel::automatic"));
  }
  // One line for each kind of reason.
  const unsigned bit = 1U << static_cast<unsigned>(begun.refusal);
  if ((shared_->kernel_logged.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
    loop_->log(LogLevel::warning, "tls",
               "connections are encrypted by OpenSSL instead of the kernel (TlsKernel::automatic): " + begun.problem);
  }
}

std::string TlsStream::link_details() const {
  if (kernel_.begun()) return "the kernel encrypts (" + std::string(name_of(kernel_.cipher())) + ")";
  return kernel_problem_.empty() ? std::string() : "OpenSSL encrypts, not the kernel: " + kernel_problem_;
}

// The kernel, or the socket, may have no room for what was accepted, and for close_notify.
std::size_t TlsStream::unsent() const noexcept {
  if (ended_ || finished_ || !open_) return 0;
  const TlsSession& session = *step_->session;
  if (!kernel_.begun()) return sending_.bytes().size() + session.output().bytes().size();
  const bool alert = finish_wanted_ && session.notes().alert.has_value();
  return static_cast<std::size_t>(kernel_.held_bytes()) + (alert ? 2 : 0);
}

std::size_t TlsStream::send_by_kernel(std::span<const ConstBuffer> pieces, std::size_t offered) {
  // RFC 8446, 5.5: 2^24.5 full records. This is 2^24, as with TLS 1.2.
  const std::uint64_t blocks_max = 2 * step_->session->context().options().records_per_key * blocks_per_record;
  if (kernel_.blocks() >= blocks_max) {
    end_by_kernel("this connection has sent " + std::to_string(blocks_max >> 26) +
                  " GiB, as many as its key may protect, and this kernel cannot replace the key: connect again, use "
                  "ChaCha20-Poly1305, or set TlsKernel::off");
    return 0;
  }
  const std::size_t taken = stream_->send(pieces);
  if (taken != 0) {
    kernel_.count(taken, pieces.size());
    step_->session->note_sent();
  }
  sink_blocked_ = below_blocked_ = taken < offered;
  return taken;
}

// Sends what OpenSSL would have sent, and ends the connection if the peer demands new keys.
void TlsStream::answer_by_kernel() {
  if (ended_) return;
  WriteNotes& notes = step_->session->notes();
  if (notes.key_demanded && !finish_wanted_) {
    return end_by_kernel(
        "the peer demands new keys (KeyUpdate), and this kernel cannot replace those of a "
        "connection: connect again, or set TlsKernel::off");
  }
  // An alert beside close_notify, after which the connection ends.
  if (notes.alert && !finish_wanted_) kernel_.send_alert(*std::exchange(notes.alert, std::nullopt));
}

// Ends the connection with close_notify.
void TlsStream::end_by_kernel(std::string reason) {
  shared_->kernel_ended.fetch_add(1, std::memory_order_relaxed);
  WriteNotes& notes = step_->session->notes();
  step_->session->shut_down();
  if (notes.alert) kernel_.send_alert(*std::exchange(notes.alert, std::nullopt));
  end(Error::of_connection(ErrorCode::unavailable, std::move(reason)));
  // A paused sink may wait until it has sent all, so it must learn of the end.
  if (paused_) poll_later(broken_by_kernel_ = true);
}

// After finish(): sends close_notify, and then the end of the stream below. shutdown() does not wait for records that
// the kernel has encrypted and that TCP had no room for.
void TlsStream::finish_by_kernel() noexcept {
  if (finished_) return;
  WriteNotes& notes = step_->session->notes();
  if (notes.alert && kernel_.send_alert(*notes.alert)) notes.alert.reset();
  if (!notes.alert && kernel_.held_bytes() == 0) {
    finished_ = true;
    return stream_->finish();
  }
  kernel_timer_.start(*loop_, loop_->after(kernel_pause_));
  kernel_pause_ = std::min<Duration>(2 * kernel_pause_, kernel_pause_max);
}

}  // namespace hawser::security::tls
