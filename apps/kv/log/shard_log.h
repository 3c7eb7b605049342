#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "kv/engine/shard.h"
#include "kv/log/durable_waits.h"
#include "kv/log/log_file_name.h"
#include "kv/log/log_rewriting.h"
#include "kv/log/log_writer.h"

namespace hawser::kv {

struct ShardLogOptions {
  LogSync sync = LogSync::second;
  LogRewritingOptions rewriting = {};
  // Bytes that the disk has not taken: then the loop waits for it. A new file has as many while it is completed.
  std::size_t held_bytes_max = LogWriter::held_bytes_max;
  // How often a file that nothing is written to is looked at: somebody may have cut or removed it.
  std::chrono::milliseconds check_interval = LogWriter::check_interval;
};

// The state of a log as INFO shows it.
struct LogStats {
  std::uint64_t file_bytes = 0;
  std::uint64_t base_bytes = 0;  // Length of the file after the previous rewriting.
  std::uint64_t rewrites = 0;
  bool rewriting = false;
  bool rewrite_failed = false;  // The last one.
  bool refused = false;         // Writes are refused.
  std::uint64_t waiting = 0;    // Calls of when_durable() that wait.
};

// Appends the changes of one shard to a file: the effects of commands, not the commands. Belongs to the shard's loop,
// which is set before the first change. Ends before the shard, and with the loop or after it.
class ShardLog final : public ChangeLog, exec::TickEnd, detail::LoopUser {
 public:
  // `file` is open at its end, begins with `header` and has `bytes` bytes. Later files of the shard are beside it.
  ShardLog(Shard& shard, const LogHeader& header, Descriptor file, const std::filesystem::path& path,
           std::uint64_t bytes, const ShardLogOptions& options);
  ShardLog(const ShardLog&) = delete;
  ShardLog& operator=(const ShardLog&) = delete;
  ~ShardLog();

  void bind(Loop& loop) noexcept { loop_ = &loop; }
  // Why writes must be refused: the file has failed, and has not been rewritten since. Null if they need not be.
  const std::string* refusal() const noexcept { return error_.empty() ? nullptr : &error_; }
  bool sync_always() const noexcept { return options_.sync == LogSync::always; }
  // As Redis names it.
  std::string sync_name() const {
    return options_.sync == LogSync::always ? "always" : options_.sync == LogSync::second ? "everysec" : "no";
  }
  // Returns true if a reply must wait for when_durable().
  bool unsynced() const noexcept { return sync_always() && !waits_.all_durable(); }
  // Returns the number of a call that waits; 0: `done` has been called.
  std::uint64_t when_durable(DurableWaits::Done done);
  // Forgets a call of when_durable() that waits.
  void forget(std::uint64_t waiting) { waits_.remove(waiting); }
  // Rewrites the file, step by step, if it is due: it has grown, or it has failed. What the shard has is the whole
  // contents of a file that has failed, also what a write has changed that was answered with an error.
  void maintain();
  // Other threads make changes until this tick ends, while the loop's thread waits for them.
  void expect_changes() {
    if (writer_ == nullptr) return;
    attach();
    if (loop_ != nullptr) loop_->at_tick_end(*this);
  }
  // Returns when the disk has everything that was logged; with LogSync::never, when the kernel has it. A log that
  // fails has refusal() afterwards.
  void wait_for_disk();
  // Makes everything durable and ends the writer. A file that has failed, or fails now, is rewritten. Fails if that is
  // not possible: then changes may be lost that were answered. The loop has ended, or its thread calls this.
  Result<void> close();
  // Any thread.
  std::uint64_t rewrites() const noexcept { return rewriting_.count(); }
  // Any thread.
  LogStats stats() const {
    const std::lock_guard lock(stats_mutex_);
    LogStats stats = stats_;
    stats.waiting = waits_.count();
    return stats;
  }

 private:
  // Bytes that a rewriting adds at most in one step.
  static constexpr std::size_t step_bytes = std::size_t{1} << 20;
  // Bytes after which changes do not wait for the end of the tick.
  static constexpr std::size_t pending_max = std::size_t{1} << 20;
  // Posted by the writer's thread; reaches this object only while it exists.
  struct Link {
    std::mutex mutex;
    Loop* loop = nullptr;
    ShardLog* log = nullptr;  // Used on the loop.
  };

  // ChangeLog
  void on_set(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version) override;
  void on_expiry(const Key& key, std::int64_t expires_at) override;
  void on_remove(const Key& key) override;
  void on_clear() override;
  // detail::LoopUser
  void on_loop_end() noexcept override;
  // exec::TickEnd
  void on_tick_end() override { hand_over(); }

  void attach();
  void report(LogLevel level, const std::string& text) const {
    if (loop_ != nullptr) loop_->log(level, "kv", text);
  }
  template <class Record>
  void append(const Record& record);
  void hand_over();
  void write_pending(bool last = false);
  void take_progress();
  void on_progress();
  void add_entries();
  void update_stats();
  std::filesystem::path next_path() const {
    return folder_ / LogFileName{.shard = index_, .number = number_ + 1}.text();
  }

  Shard& shard_;
  const unsigned index_;
  const ShardLogOptions options_;
  const std::filesystem::path folder_;
  Loop* loop_ = nullptr;  // Null after the loop's end.
  bool attached_ = false;
  LogPieces pending_;
  std::string error_;  // Why writes are refused; empty: they are not.
  DurableWaits waits_;

  std::uint64_t number_ = 0;  // Number in the name of the file.
  std::uint64_t file_bytes_ = 0;
  LogRewriting rewriting_;
  mutable std::mutex stats_mutex_;  // Guards stats_.
  LogStats stats_ = {};

  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
  std::unique_ptr<LogWriter> writer_;
};

}  // namespace hawser::kv
