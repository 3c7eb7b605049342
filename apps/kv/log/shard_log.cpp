#include "kv/log/shard_log.h"

#include <utility>

#include "hawser/detail/loop_access.h"
#include "kv/log/log_format.h"

namespace hawser::kv {

ShardLog::ShardLog(Shard& shard, const LogHeader& header, Descriptor file, const std::filesystem::path& path,
                   std::uint64_t bytes, const ShardLogOptions& options)
    : shard_(shard),
      index_(header.shard),
      options_(options),
      folder_(path.parent_path()),
      file_bytes_(bytes),
      rewriting_(bytes, options.rewriting) {
  link_->log = this;
  writer_ = std::make_unique<LogWriter>(
      std::move(file), path, bytes, header, options.sync,
      [link = link_] {
        const std::lock_guard lock(link->mutex);
        if (link->loop == nullptr) return;
        link->loop->post([link] {
          if (link->log != nullptr) link->log->on_progress();
        });
      },
      options.held_bytes_max, options.check_interval);
  shard_.add_log(*this);
  update_stats();
}

ShardLog::~ShardLog() {
  static_cast<void>(close());
  shard_.remove_log(*this);
}

// Another thread has bound the loop.
void ShardLog::attach() {
  if (attached_ || loop_ == nullptr) return;
  detail::LoopAccess::add_user(*loop_, *this);
  attached_ = true;
  const std::lock_guard lock(link_->mutex);
  link_->loop = loop_;
}

void ShardLog::on_loop_end() noexcept {
  loop_ = nullptr;
  attached_ = false;
  const std::lock_guard lock(link_->mutex);
  link_->loop = nullptr;
}

Result<void> ShardLog::close() {
  if (writer_ == nullptr) return {};
  if (attached_) {
    loop_->remove_tick_end(*this);
    detail::LoopAccess::remove_user(*loop_, *this);
    on_loop_end();
  }
  loop_ = nullptr;  // A loop that nothing was logged on may have ended.
  if (rewriting_.finishing()) writer_->wait_for_replacement();
  take_progress();
  rewriting_.abandon();
  write_pending();
  writer_->wait_for_disk(true);
  take_progress();
  if (!error_.empty()) {
    rewriting_.begin();
    while (rewriting_.adds_entries()) add_entries();
    writer_->wait_for_replacement();
    take_progress();
  }
  writer_->finish();
  take_progress();
  link_->log = nullptr;
  writer_.reset();
  if (!error_.empty()) {
    return fail(ErrorCode::unavailable, "the log of shard " + std::to_string(index_) +
                                            " is not complete, and changes that were answered may be lost: " + error_ +
                                            ". It could not be rewritten: " + rewriting_.error());
  }
  waits_.set_all_durable();
  error_ = "the log is closed";
  return {};
}

// ---- Changes ----

template <class Record>
void ShardLog::append(const Record& record) {
  if (writer_ == nullptr) return;
  attach();
  const std::size_t before = pending_.size();
  pending_.append([&](std::string& out) {
    const std::size_t begin = out.size();
    append_record(out, record);
    if (rewriting_.adds_entries()) rewriting_.pieces.append([&](std::string& copy) { copy.append(out, begin); });
  });
  waits_.logged(pending_.size() - before);
  if (pending_.size() >= pending_max || loop_ == nullptr) {
    hand_over();
  } else {
    loop_->at_tick_end(*this);
  }
}

void ShardLog::on_set(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version) {
  append(EffectRecord{
      .kind = LogKind::set, .key = key.bytes, .value = value, .expires_at = expires_at, .version = version});
}

void ShardLog::on_expiry(const Key& key, std::int64_t expires_at) {
  append(EffectRecord{.kind = LogKind::expiry, .key = key.bytes, .expires_at = expires_at});
}

void ShardLog::on_remove(const Key& key) { append(EffectRecord{.kind = LogKind::remove, .key = key.bytes}); }

void ShardLog::on_clear() { append(EffectRecord{.kind = LogKind::clear}); }

void ShardLog::hand_over() {
  // A disk that has failed may not answer. Writes are refused, and what is removed waits here: on_progress() follows.
  if (rewriting_.repairs() && (rewriting_.finishing() || !writer_->has_room())) return;
  if (rewriting_.finishing()) {
    // The bytes belong to the new file. A writer that is slow with it stops the loop.
    if (pending_.size() < writer_->held_most()) return;
    writer_->wait_for_replacement();
    take_progress();
  }
  write_pending();
}

// `last`: the replacement is complete with what is handed over.
void ShardLog::write_pending(bool last) {
  if (pending_.empty() && rewriting_.pieces.empty() && !last) return;
  writer_->push(pending_, rewriting_.pieces, next_path(), {rewriting_.take_first(), last});
}

// ---- Durability ----

std::uint64_t ShardLog::when_durable(DurableWaits::Done done) {
  if (!error_.empty()) return done(&error_), 0;
  if (waits_.all_durable()) return done(nullptr), 0;
  return waits_.add(std::move(done));
}

void ShardLog::wait_for_disk() {
  if (!error_.empty()) return;
  // Until a replacement has ended, pending bytes are not handed over.
  if (rewriting_.finishing()) writer_->wait_for_replacement();
  take_progress();
  if (!error_.empty()) return;
  hand_over();
  writer_->wait_for_disk();
  take_progress();
}

void ShardLog::take_progress() {
  LogWriter::Progress progress = writer_->progress();
  file_bytes_ = progress.file_bytes;
  waits_.set_durable(progress.durable);
  const LogRewriting::Clock::time_point now = LogRewriting::Clock::now();
  if (progress.replaced) {
    number_ = progress.number;
    rewriting_.succeed(file_bytes_, now);
  }
  if (!progress.replacement_error.empty()) {
    rewriting_.fail(file_bytes_, std::move(progress.replacement_error), now);
    report(LogLevel::warning,
           "the log of shard " + std::to_string(index_) + " could not be rewritten: " + rewriting_.error());
  }
  const bool failed = !progress.error.empty();
  if (failed && (error_.empty() || progress.replaced)) {
    rewriting_.repair(now, progress.changed);
    report(LogLevel::error, "writes are refused until the log can be rewritten: " + progress.error);
  } else if (!failed && !error_.empty()) {
    report(LogLevel::info, "the log of shard " + std::to_string(index_) + " was rewritten: writes are accepted again");
  }
  error_ = std::move(progress.error);
  update_stats();
}

void ShardLog::update_stats() {
  const std::lock_guard lock(stats_mutex_);
  stats_ = {.file_bytes = file_bytes_,
            .base_bytes = rewriting_.base_bytes(),
            .rewrites = rewrites(),
            .rewriting = rewriting_.running(),
            .rewrite_failed = !rewriting_.error().empty(),
            .refused = !error_.empty()};
}

void ShardLog::on_progress() {
  take_progress();
  hand_over();
  waits_.notify(error_);
  // As fast as the disk takes it: until then, what was answered before is in memory alone.
  if (rewriting_.repairs()) maintain();
}

// ---- Rewriting ----

void ShardLog::maintain() {
  if (writer_ == nullptr || rewriting_.finishing()) return;
  attach();
  if (!rewriting_.adds_entries()) {
    if (!rewriting_.due(file_bytes_, LogRewriting::Clock::now())) return;
    // The replacement begins at a point of the changes that the writer has.
    hand_over();
    rewriting_.begin();
  }
  // A disk that has failed may not answer. Reads go on.
  if (!rewriting_.repairs() || writer_->has_room()) add_entries();
  update_stats();
}

// Entries that have expired are written too. A clock that is set back makes them valid again, and their later records
// need them.
void ShardLog::add_entries() {
  do {
    rewriting_.cursor = shard_.scan(rewriting_.cursor, never_expired, [&](Entry& entry) {
      rewriting_.pieces.append([&](std::string& out) {
        append_record(out, {.kind = LogKind::set,
                            .key = entry.key(),
                            .value = entry.value(),
                            .expires_at = entry.expires_at,
                            .version = entry.version});
      });
    });
  } while (rewriting_.cursor != 0 && rewriting_.pieces.size() < step_bytes);
  if (rewriting_.cursor == 0) rewriting_.finish();
  write_pending(rewriting_.finishing());
}

}  // namespace hawser::kv
