#include "block/nbd/remote_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

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

RemoteServer::RemoteServer(Loop& loop, const std::string& address, ClientOptions options, Duration outage_max)
    : address_(address), loop_(loop), outage_max_(outage_max), client_(loop, without_deadline(std::move(options))) {}

Task<Result<void>> RemoteServer::connect() {
  if (closed_) co_return store_fail(ESHUTDOWN, "the connection to the server at " + address_ + " has been closed");
  co_return co_await client_.connect(address_);
}

Task<Result<std::vector<std::string>>> RemoteServer::list() {
  if (const Result<void> connected = co_await connect(); !connected) co_return std::unexpected(connected.error());
  const Result<std::vector<VolumeStatus>> volumes = co_await client_.call<&VolumeService::list>();
  if (!volumes) co_return std::unexpected(volumes.error());
  std::vector<std::string> names;
  for (const VolumeStatus& volume : *volumes) names.push_back(volume.name);
  co_return names;
}

Task<Result<std::shared_ptr<RemoteOpening>>> RemoteServer::open_once(const std::string& name) {
  if (const Result<void> connected = co_await connect(); !connected) co_return std::unexpected(connected.error());
  Result<OpenedVolume> opened = co_await client_.call<&VolumeService::open>(name);
  if (!opened && opened.error().code == ErrorCode::unknown_method) {
    co_return store_fail(EPROTONOSUPPORT, "the server at " + address_ +
                                              " is older than this program: update `hawser-block serve` first");
  }
  if (!opened) co_return std::unexpected(opened.error());
  if (!medium_ || medium_->name != opened->medium) {
    const std::shared_ptr<RemoteMedium> before = std::exchange(medium_, std::make_shared<RemoteMedium>(opened->medium));
    if (before) before->lost.request_stop();
  }
  co_return std::make_shared<RemoteOpening>(client_, std::move(*opened), medium_);
}

Task<Result<std::shared_ptr<RemoteOpening>>> RemoteServer::open(std::string name, Time end, std::stop_token token) {
  for (Duration pause = absent_pause_first;; pause = std::min(2 * pause, absent_pause_max)) {
    Result<std::shared_ptr<RemoteOpening>> opened = co_await open_once(name);
    if (opened || !may_open_later(opened.error()) || loop_.now() >= end) co_return opened;
    if (!co_await loop_.sleep(pause, token)) co_return opened;
  }
}

void RemoteServer::close() {
  closed_ = true;
  client_.close();
}

}  // namespace hawser::block::nbd
