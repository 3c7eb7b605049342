#include "block/nbd/remote_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "block/random_id.h"
#include "block/store/store_error.h"

namespace hawser::block::nbd {
namespace {

// Between two attempts to open a volume.
constexpr Duration absent_pause_first = std::chrono::milliseconds(1);
constexpr Duration absent_pause_max = std::chrono::milliseconds(100);

// Nothing of the volume itself prevents that it is opened later.
bool may_open_later(const Error& error) noexcept {
  return is_interrupted(error) || error.code == ErrorCode::overloaded || error.code == ErrorCode::deadline_exceeded ||
         (error.code == ErrorCode::application && error.application_code == EBUSY);
}

ClientOptions without_deadline(ClientOptions options) {
  // A write whose call was given up might be executed after later ones. Pings find a server that is gone.
  options.call_timeout = forever;
  return options;
}

}  // namespace

bool is_interrupted(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::not_sent:
    case ErrorCode::outcome_unknown:
    case ErrorCode::unavailable:
    case ErrorCode::cancelled: return true;  // By a server that ends: nobody else cancels requests.
    case ErrorCode::application: return error.application_code == ESTALE;
    default: return false;
  }
}

RemoteServer::RemoteServer(Loop& loop, const std::string& address, ClientOptions options, Duration outage_max,
                           std::string client_name)
    : address_(address),
      loop_(loop),
      outage_max_(outage_max),
      client_name_(std::move(client_name)),
      process_(random_id()),
      client_(loop, without_deadline(std::move(options))) {}

Task<Result<void>> RemoteServer::connect() {
  if (closed_) co_return store_fail(ESHUTDOWN, "the connection to the server at " + address_ + " has been closed");
  Result<void> connected = co_await client_.connect(address_);
  reached_ = reached_ || connected;
  co_return connected;
}

// Returns the first result of `make` that is not that of an outage, or the one at `end`.
template <class Make>
std::invoke_result_t<Make&> RemoteServer::until_there(Make make, Time end, std::stop_token token) {
  for (Duration pause = absent_pause_first;; pause = std::min(2 * pause, absent_pause_max)) {
    auto done = co_await make();
    const bool ends = done || !may_open_later(done.error()) || loop_.now() >= end;
    note(done ? nullptr : &done.error(), ends);
    if (ends) co_return done;
    if (!co_await loop_.sleep(pause, token)) co_return done;
  }
}

Task<Result<std::vector<std::string>>> RemoteServer::list() {
  if (!reached_) return list_once();
  const Time end = loop_.after(std::min<Duration>(outage_max_, first_outage_max));
  return until_there([this] { return list_once(); }, end, {});
}

Task<Result<std::vector<std::string>>> RemoteServer::list_once() {
  if (const Result<void> connected = co_await connect(); !connected) co_return std::unexpected(connected.error());
  const Result<std::vector<VolumeStatus>> volumes = co_await client_.call<&VolumeService::list>();
  if (!volumes) co_return std::unexpected(volumes.error());
  std::vector<std::string> names;
  for (const VolumeStatus& volume : *volumes) names.push_back(volume.name);
  co_return names;
}

Task<Result<std::shared_ptr<RemoteOpening>>> RemoteServer::open_once(const std::string& name) {
  if (const Result<void> connected = co_await connect(); !connected) co_return std::unexpected(connected.error());
  Result<OpenedVolume> opened = co_await client_.call<&VolumeService::open_for>(name, client_name_, process_);
  if (!opened && opened.error().code == ErrorCode::unknown_method) {
    co_return store_fail(EPROTONOSUPPORT, "the server at " + address_ +
                                              " is older than this program: update `hawser-block serve` first");
  }
  if (!opened) co_return std::unexpected(opened.error());
  if (!medium_ || medium_->name != opened->medium) {
    const std::shared_ptr<RemoteMedium> before = std::exchange(medium_, std::make_shared<RemoteMedium>(opened->medium));
    if (before) {
      loop_.log(LogLevel::warning, "volumes",
                "writes that were not flushed may be lost: the machine of the server at " + address_ +
                    " was started again, a sync failed there, or it is another one; what was opened before fails");
      before->lost.request_stop();
    }
  }
  co_return std::make_shared<RemoteOpening>(client_, std::move(*opened), medium_);
}

Task<Result<std::shared_ptr<RemoteOpening>>> RemoteServer::open_alone(std::string name, Time end,
                                                                      std::stop_token token) {
  co_return co_await until_there([&] { return open_once(name); }, end, std::move(token));
}

// One line each for the begin and the end of an outage, and for the first request that fails in it.
void RemoteServer::note(const Error* error, bool ends) {
  if (error != nullptr && !may_open_later(*error)) return;
  if (error == nullptr) {
    if (!away_since_) return;
    const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(loop_.now() - *away_since_);
    loop_.log(LogLevel::info, "volumes",
              "the server at " + address_ + " is there again, after " + std::to_string(lasted.count()) + " ms");
    away_since_.reset();
    given_up_ = false;
    return;
  }
  if (!away_since_) {
    away_since_ = loop_.now();
    loop_.log(LogLevel::info, "volumes", "requests wait for the server at " + address_ + ": " + error->text);
  }
  if (ends && !std::exchange(given_up_, true)) {
    loop_.log(LogLevel::warning, "volumes",
              "requests fail: they have waited long enough for the server at " + address_ +
                  " (--outage-max): " + error->text);
  }
}

std::shared_ptr<RemoteOpening> RemoteServer::left_at(const std::string& volume) const noexcept {
  const auto found =
      std::ranges::find(left_, volume, [](const auto& opening) -> const std::string& { return opening->status.name; });
  return found == left_.end() ? nullptr : *found;
}

bool RemoteServer::is_left(const std::shared_ptr<RemoteOpening>& opening) const noexcept {
  return std::ranges::find(left_, opening) != left_.end();
}

Task<Result<void>> RemoteServer::end_left(std::string volume, Time end, std::stop_token token) {
  while (const std::shared_ptr<RemoteOpening> left = left_at(volume)) {
    const Result<Permit> alone = co_await left->ending.acquire(1, token);
    if (!alone) co_return std::unexpected(alone.error());
    if (!is_left(left)) continue;
    const Result<std::shared_ptr<RemoteOpening>> ended = co_await open_alone(left->volume.name(), end, token);
    // Nothing of a volume that was removed is executed.
    const bool removed =
        !ended && ended.error().code == ErrorCode::application && ended.error().application_code == ENODEV;
    if (!ended && !removed) co_return std::unexpected(ended.error());
    left_.remove(left);
  }
  co_return Result<void>{};
}

Task<Result<std::shared_ptr<RemoteOpening>>> RemoteServer::open(std::string name, Time end, std::stop_token token) {
  Result<std::shared_ptr<RemoteOpening>> opened = co_await open_alone(name, end, token);
  if (!opened) co_return opened;
  left_.remove_if([&](const auto& left) { return left->volume.name() == name; });
  const Result<void> ended = co_await end_left((*opened)->status.name, end, token);
  if (!ended) co_return std::unexpected(ended.error());
  co_return opened;
}

void RemoteServer::leave(std::shared_ptr<RemoteOpening> opening) noexcept {
  if (is_left(opening)) return;
  try {
    if (left_.size() >= left_max) left_.pop_front();
    left_.push_back(std::move(opening));
  } catch (const std::bad_alloc&) {
    loop_.log(LogLevel::warning, "volumes",
              "a late write may replace newer ones: no memory for the name of its opening");
  }
}

void RemoteServer::close() {
  closed_ = true;
  client_.close();
}

}  // namespace hawser::block::nbd
