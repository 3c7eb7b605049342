#include "security/tls/context_store.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <utility>

#include "base/try.h"
#include "hawser/loop.h"
#include "security/tls/pkcs11.h"

namespace hawser::security::tls {
namespace {

// An interval may be `forever`, which cannot be added to a time.
constexpr Duration interval_max = std::chrono::hours(24 * 365);

std::int64_t steady_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ContextStore::ContextStore(ContextOptions options, Duration interval, FileWatch::Notified noticed)
    : options_(std::move(options)), interval_(interval), watch_(std::move(noticed)) {}

std::vector<std::string> ContextStore::files() const {
  std::vector<std::string> all;
  const auto add = [&all](const std::string& path) {
    if (!path.empty()) all.push_back(path);
  };
  for (const TlsCertificate& files : options_.certificates) {
    add(files.certificate_file);
    add(is_pkcs11(files.key_file) ? pin_file_of_pkcs11(files.key_file) : files.key_file);
    add(files.ocsp_file);
  }
  for (const TlsSharedKey& key : options_.shared_keys) add(key.file);
  add(options_.ca_file);
  for (const std::string& file : options_.crl_files) add(file);
  return all;
}

std::string ContextStore::stamp() const {
  std::string all;
  for (const std::string& path : files()) all += file_stamp(path) + ";";
  return all;
}

std::int64_t ContextStore::next_check() const noexcept {
  return steady_ns() + std::min<Duration>(interval_, interval_max).count();
}

std::shared_ptr<const TlsContext> ContextStore::present() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

// The stamp is taken first: a change while the files are read is noticed by the next check.
Result<void> ContextStore::load_locked() {
  stamp_ = stamp();
  Result<std::shared_ptr<const TlsContext>> loaded = TlsContext::load(options_, stop_.get_token());
  refused_pin_.reset();
  if (!loaded && loaded.error().code == ErrorCode::permission_denied) refused_pin_ = loaded.error();
  const std::lock_guard lock(mutex_);
  next_check_ns_ = next_check();
  TRY(loaded);
  // Before the new one is visible. The first load is not a reload.
  if (context_ != nullptr) reloads_.fetch_add(1, std::memory_order_relaxed);
  context_.swap(*loaded);  // The old one is destroyed without the lock.
  return {};
}

Result<void> ContextStore::prepare() {
  if (present() != nullptr) return {};
  const std::lock_guard loading(load_mutex_);
  if (present() != nullptr) return {};
  if (refused_pin_ && stamp() == stamp_) return fail(*refused_pin_);
  Result<void> loaded = load_locked();
  if (!loaded) return loaded;
  if (std::string news = news_of_ocsp(); !news.empty()) write_line(LogLevel::warning, std::move(news));
  watch_locked();
  watch_.call_later(Duration(0));  // The files may have changed before they were watched.
  return loaded;
}

// Watches the files, wherever links lead now.
void ContextStore::watch_locked() {
  if (interval_ <= Duration(0) || interval_ == forever) return;
  const Result<void> watched = watch_.watch(files());
  std::string why = watched ? std::string() : watched.error().text;
  if (why == unwatched_) return;
  unwatched_ = std::move(why);
  if (unwatched_.empty()) return;
  write_line(LogLevel::warning,
             unwatched_ + ". The files of certificates are checked for changes once in reload_interval only");
}

// Says once which responses are not sent, because they have ended or have not begun.
std::string ContextStore::news_of_ocsp() {
  std::string old = present()->old_ocsp_files(std::time(nullptr));
  if (old == old_ocsp_files_) return {};
  old_ocsp_files_ = old;
  return old.empty() ? std::string()
                     : "these OCSP responses have ended, or have not begun, and are not sent: " + old +
                           ". Renew them (TlsCertificate::ocsp_file)";
}

Result<void> ContextStore::reload() {
  Result<void> loaded;
  {
    const std::lock_guard loading(load_mutex_);
    loaded = load_locked();
    failure_.reset();
    if (loaded) watch_locked();
  }
  if (!loaded) reloads_failed_.fetch_add(1, std::memory_order_relaxed);
  watch_.call_later(Duration(0));  // For a check() that has returned because of the lock.
  return loaded;
}

void ContextStore::stop() noexcept {
  stop_.request_stop();
  watch_.stop();
}

void ContextStore::write_line(LogLevel level, std::string text) {
  const std::lock_guard lock(line_mutex_);
  line_ = Line{level, std::move(text)};
  line_waits_.store(true, std::memory_order_release);
}

std::optional<ContextStore::Line> ContextStore::take_line() {
  if (!line_waits_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(line_mutex_);
  line_waits_.store(false, std::memory_order_relaxed);
  return std::exchange(line_, std::nullopt);
}

// While one thread reads the files, and perhaps waits for a trial signature, others go on with the present ones.
std::shared_ptr<const TlsContext> ContextStore::current() {
  {
    const std::lock_guard lock(mutex_);
    if (context_ == nullptr || interval_ == forever || steady_ns() < next_check_ns_) return context_;
    next_check_ns_ = next_check();
  }
  if (Loop::current() != nullptr && watch_.active()) {
    watch_.call_later(Duration(0));
  } else {
    check();
  }
  return present();
}

void ContextStore::check() noexcept {
  do {
    const std::unique_lock loading(load_mutex_, std::try_to_lock);
    if (!loading.owns_lock()) return;
    try {
      check_locked();
    } catch (const std::exception&) {
      // Without memory the present files stay. The next check reads them again.
      stamp_.clear();
    }
  } while (changed_.load());
}

void ContextStore::check_locked() {
  const bool changed = changed_.exchange(false);
  if (present() == nullptr) return;  // prepare() reports what is wrong.
  watch_locked();
  if (!changed && stamp() == stamp_) {
    if (failure_ && steady_ns() >= failure_->report_ns) return report_failure();
    if (std::string news = news_of_ocsp(); !news.empty()) write_line(LogLevel::warning, std::move(news));
    return;
  }
  if (Result<void> loaded = load_locked(); !loaded) return note_failure(std::move(loaded.error()));
  failure_.reset();
  const std::string news = news_of_ocsp();
  write_line(news.empty() ? LogLevel::info : LogLevel::warning,
             "the files of certificates have changed: new connections use the new ones" +
                 (news.empty() ? news : ". But " + news));
}

void ContextStore::note_failure(Error error) {
  const std::int64_t now = steady_ns();
  const std::int64_t settle = std::min<Duration>(interval_, settle_time).count();
  const std::int64_t first = failure_ ? failure_->first_ns : now;
  failure_ = Failure{std::move(error), first, std::min(now + settle, first + 10 * settle)};
  if (now >= failure_->report_ns) return report_failure();
  const Duration rest = std::chrono::nanoseconds(failure_->report_ns - now);
  watch_.call_later(rest);
  const std::lock_guard lock(mutex_);
  next_check_ns_ = std::min(next_check_ns_, failure_->report_ns);
}

void ContextStore::report_failure() {
  reloads_failed_.fetch_add(1, std::memory_order_relaxed);
  write_line(LogLevel::error,
             "the files of certificates have changed and cannot be used; the old ones stay: " + failure_->error.text);
  failure_.reset();
}

}  // namespace hawser::security::tls
