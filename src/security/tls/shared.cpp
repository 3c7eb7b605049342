#include "security/tls/shared.h"

#include <exception>

namespace hawser::security::tls {

TlsCounters counters_of(const TlsShared& shared) noexcept {
  const auto get = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {.handshakes = get(shared.handshakes),
          .resumed = get(shared.resumed),
          .handshakes_failed = get(shared.failed),
          .paths_proved = get(shared.paths_proved),
          .paths_refused = get(shared.paths_refused),
          .path_messages_refused = get(shared.path_messages_refused),
          .reloads = shared.store.reloads(),
          .reloads_failed = shared.store.reloads_failed(),
          .signatures = get(shared.store.options().signing->made),
          .signatures_failed = get(shared.store.options().signing->failed),
          .held_bytes = get(shared.held.totals().bytes),
          .held_ended = get(shared.held.totals().ended),
          .kernel_begun = get(shared.kernel_begun),
          .kernel_refused = get(shared.kernel_refused),
          .kernel_ended = get(shared.kernel_ended)};
}

// Checks the files of certificates on a thread of the pool, which may block: a trial signature may.
struct TlsShared::FilesCheck final : detail::Posted {
  explicit FilesCheck(TlsShared& of) noexcept : shared(of) {}
  void run() override {
    shared.check_waits_.store(false);
    shared.store.check();
  }
  TlsShared& shared;  // Its pool, which runs this, ends before it.
};

// On the thread that watches files.
void TlsShared::files_noticed(bool changed) noexcept {
  if (changed) store.note_changed();
  // Without threads there are no functions that make trial signatures.
  if (pool == nullptr) return store.check();
  if (check_waits_.exchange(true)) return;
  try {
    if (pool->submit(&store, std::make_unique<FilesCheck>(*this)) != 0) return;
  } catch (const std::exception&) {
    // As if the queue were full.
  }
  check_waits_.store(false);
  constexpr Duration busy_pause = std::chrono::milliseconds(100);
  store.check_later(busy_pause);
}

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

}  // namespace hawser::security::tls
