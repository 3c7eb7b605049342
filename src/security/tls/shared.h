#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "exec/offload_pool.h"
#include "hawser/time.h"
#include "hawser/tls.h"
#include "security/tls/context_store.h"
#include "security/tls/held_memory.h"
#include "security/tls/kernel.h"

namespace hawser::security::tls {

// State that all streams of a TlsServer or TlsClient share. Thread-safe.
struct TlsShared {
  // `threads` 0: handshakes run on the loops.
  // `held_bytes_max` 0: what the peers make the streams hold is not bounded.
  TlsShared(ContextOptions options, Duration reload_interval, unsigned threads, std::size_t handshakes_max,
            std::size_t held_bytes_max = 0)
      : kernel(options.kernel),
        store(std::move(options), reload_interval, [this](bool changed) { files_noticed(changed); }),
        held(held_bytes_max),
        waiting_max(handshakes_max),
        pool(threads == 0 ? nullptr : std::make_unique<exec::OffloadPool>(threads, handshakes_max, nullptr)) {}
  // A thread of the pool may wait for a trial signature, and the thread that watches files uses the pool.
  ~TlsShared() { store.stop(); }

  // Tries what the kernel can encrypt, unless that is known. The first call may load modules, so it belongs on a thread
  // that may block. After a trial that has timed out, there is none for kernel_trial_pause. Throws std::bad_alloc.
  void examine_kernel();
  static constexpr Duration kernel_trial_pause = std::chrono::seconds(10);
  // Does so on a thread of the pool, if there is one.
  void examine_kernel_later();
  // Returns the result. Does not wait for others.
  std::shared_ptr<const KernelSupport> kernel_support() const;

  const TlsKernel kernel;
  ContextStore store;
  HeldMemories held;
  std::atomic<std::uint64_t> handshakes{0};
  std::atomic<std::uint64_t> resumed{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> paths_proved{0};
  std::atomic<std::uint64_t> paths_refused{0};
  std::atomic<std::uint64_t> path_messages_refused{0};
  std::atomic<std::uint64_t> kernel_begun{0};
  std::atomic<std::uint64_t> kernel_refused{0};
  std::atomic<std::uint64_t> kernel_ended{0};
  std::atomic<unsigned> kernel_logged{0};  // The KernelRefusals that the log has, as bits.

 private:
  struct FilesCheck;
  void files_noticed(bool changed) noexcept;

  std::atomic<bool> check_waits_{false};  // A check of the files is in the queue of the pool.
  std::atomic<bool> kernel_known_{false};
  std::mutex kernel_trial_mutex_;  // Held while the kernel is tried. Guards kernel_trial_next_.
  std::chrono::steady_clock::time_point kernel_trial_next_ = {};
  mutable std::mutex kernel_mutex_;
  std::shared_ptr<const KernelSupport> kernel_support_ = std::make_shared<const KernelSupport>(KernelSupport{
      .problem = "it was not tried yet what the kernel can encrypt: connect again"});  // By kernel_mutex_.

 public:
  const std::size_t waiting_max;
  // The last member: its threads use all others, so it ends before them.
  const std::unique_ptr<exec::OffloadPool> pool;
};

TlsCounters counters_of(const TlsShared& shared) noexcept;

}  // namespace hawser::security::tls
