#include "security/tls/kernel_sender.h"

#include <algorithm>
#include <utility>

#include "base/log_line.h"

namespace hawser::security::tls {

Result<void> KernelSender::begin(TlsShared& shared, Loop& loop, int socket, TlsSession& session) {
  const KernelBegun begun = begin_kernel(kernel_, socket, session.ssl(), session.notes(), *shared.kernel_support());
  if (begun.refusal == KernelRefusal::none) {
    session.notes().dropped = true;
    shared.kernel_begun.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  problem_ = begun.problem;
  shared.kernel_refused.fetch_add(1, std::memory_order_relaxed);
  if (shared.kernel == TlsKernel::required) {
    return fail(Error::of_connection(ErrorCode::unavailable,
                                     "TlsKernel::required: " + begun.problem + ", or set TlsKernel::automatic"));
  }
  // One line for each kind of reason.
  const unsigned bit = 1U << static_cast<unsigned>(begun.refusal);
  if ((shared.kernel_logged.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
    log_line(loop.options().log, LogLevel::warning, "tls", [&] {
      return "connections are encrypted by OpenSSL instead of the kernel (TlsKernel::automatic): " + begun.problem;
    });
  }
  return {};
}

std::string KernelSender::details() const {
  if (begun()) return "the kernel encrypts (" + std::string(name_of(kernel_.cipher())) + ")";
  return problem_.empty() ? std::string() : "OpenSSL encrypts, not the kernel: " + problem_;
}

Result<std::size_t> KernelSender::send(transport::Stream& below, std::span<const ConstBuffer> pieces,
                                       TlsSession& session) {
  // RFC 8446, 5.5: 2^24.5 full records. This is 2^24, as with TLS 1.2.
  const std::uint64_t blocks_max = 2 * session.context().options().records_per_key * blocks_per_record;
  if (kernel_.blocks() >= blocks_max) {
    return fail(Error::of_connection(
        ErrorCode::unavailable,
        "this connection has sent " + std::to_string(blocks_max >> 26) +
            " GiB, as many as its key may protect, and this kernel cannot replace the key: connect again, use "
            "ChaCha20-Poly1305, or set TlsKernel::off"));
  }
  const std::size_t taken = below.send(pieces);
  if (taken != 0) {
    kernel_.count(taken, pieces.size());
    session.note_sent();
  }
  return taken;
}

void KernelSender::send_alert(WriteNotes& notes) noexcept {
  if (notes.alert) kernel_.send_alert(*std::exchange(notes.alert, std::nullopt));
}

// shutdown() does not wait for records that the kernel has encrypted and that TCP had no room for.
bool KernelSender::finish(Loop& loop, WriteNotes& notes) noexcept {
  if (notes.alert && kernel_.send_alert(*notes.alert)) notes.alert.reset();
  if (!notes.alert && kernel_.held_bytes() == 0) return true;
  timer_.start(loop, loop.after(pause_));
  pause_ = std::min<Duration>(2 * pause_, pause_max);
  return false;
}

}  // namespace hawser::security::tls
