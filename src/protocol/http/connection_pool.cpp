#include "protocol/http/connection_pool.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/try.h"
#include "hawser/runtime.h"
#include "transport/stream_security.h"

namespace hawser::protocol::http {

ConnectionPool::ConnectionPool(Loop& loop, const HttpClientOptions& options)
    : loop_(loop),
      network_((loop.options().runtime != nullptr ? loop.options().runtime : Runtime::process_default())->network()),
      options_(options),
      // The connection limits bodies itself: the limit depends on the request.
      limits_{.line_bytes_max = options.line_bytes_max,
              .head_bytes_max = options.header_bytes_max,
              .fields_max = options.header_fields_max,
              .body_bytes_max = UINT64_MAX},
      sweep_timer_(*this) {}

ConnectionPool::~ConnectionPool() {
  if (uses_loop_) detail::LoopAccess::remove_user(loop_, *this);
}

void ConnectionPool::on_loop_end() noexcept {
  uses_loop_ = false;
  loop_ended_ = true;
  const std::shared_ptr<ConnectionPool> alive = shared_from_this();
  while (works_ != nullptr) {
    Work& work = *works_;
    works_ = work.next_;
    if (works_ != nullptr) works_->previous_ = &works_;
    work.previous_ = nullptr;
    work.on_loop_end();
  }
  close();
}

ConnectionPool::Work::Work(ConnectionPool& pool) : list_(pool.shared_from_this()) {
  if (!std::exchange(pool.uses_loop_, true)) detail::LoopAccess::add_user(pool.loop_, pool);
  next_ = pool.works_;
  previous_ = &pool.works_;
  if (next_ != nullptr) next_->previous_ = &next_;
  pool.works_ = this;
}

ConnectionPool::Work::~Work() {
  if (previous_ == nullptr) return;
  *previous_ = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

Result<void> ConnectionPool::check_loop() const {
  if (loop_ended_) {
    return fail(ErrorCode::unavailable,
                "the loop of this HttpClient has ended, as the one of sync_wait() does when that returns: use a Loop "
                "that lives longer");
  }
  if (Loop::current() == nullptr || Loop::current() == &loop_) return {};
  return fail(ErrorCode::invalid_argument, "this HttpClient belongs to another loop than the one that runs here");
}

ConnectionPool::Place& ConnectionPool::Place::operator=(Place&& other) noexcept {
  if (this == &other) return *this;
  release();
  pool_ = std::move(other.pool_);
  host_ = other.host_;
  permit_ = std::move(other.permit_);
  return *this;
}

void ConnectionPool::Place::release() noexcept {
  permit_.release();
  const std::shared_ptr<ConnectionPool> pool = std::exchange(pool_, nullptr);
  if (pool != nullptr && --host_->second.users == 0) pool->hosts_.erase(host_);
}

Task<ConnectionPool::Place> ConnectionPool::enter(std::string key) {
  Place place;
  place.host_ = hosts_.try_emplace(std::move(key), options_.connections_per_host_max).first;
  place.pool_ = shared_from_this();
  ++place.host_->second.users;
  Permit permit = co_await place.host_->second.permits.acquire();
  place.permit_ = std::move(permit);
  co_return std::move(place);
}

std::unique_ptr<ClientConnection> ConnectionPool::take_idle(const std::string& key) {
  for (auto one = idle_.rbegin(); one != idle_.rend(); ++one) {
    if (one->key != key || !one->connection->reusable()) continue;
    std::unique_ptr<ClientConnection> found = std::move(one->connection);
    idle_.erase(std::next(one).base());
    return found;
  }
  return nullptr;
}

Task<Result<std::unique_ptr<ClientConnection>>> ConnectionPool::connect(const ClientTarget& target, Time deadline) {
  deadline = std::min(deadline, loop_.after(options_.connect_timeout));
  Result<std::unique_ptr<transport::Stream>> stream =
      co_await network_->connect(loop_, target.address, deadline - loop_.now());
  if (stream && target.url.secure) {
    stream = co_await options_.security->protect(loop_, std::move(*stream), target.url.address, "http/1.1", deadline);
  }
  CO_TRY(stream);
  co_return std::make_unique<ClientConnection>(loop_, std::move(*stream), limits_);
}

void ConnectionPool::keep(const std::string& key, std::unique_ptr<ClientConnection> connection) {
  if (closed_ || !connection->reusable() || options_.idle_connections_max == 0) return;
  connection->rest();
  std::erase_if(idle_, [](const Idle& one) { return !one.connection->reusable(); });
  while (idle_.size() >= options_.idle_connections_max) idle_.pop_front();
  idle_.push_back({key, std::move(connection), loop_.now()});
  if (!sweep_timer_.running()) start_sweeping();
}

void ConnectionPool::start_sweeping() {
  if (idle_.empty() || closed_ || options_.idle_timeout == forever) return;
  sweep_timer_.start(loop_, loop_.after(options_.idle_timeout - (loop_.now() - idle_.front().since)));
}

void ConnectionPool::sweep() {
  const Time now = loop_.now();
  std::erase_if(
      idle_, [&](const Idle& one) { return now - one.since >= options_.idle_timeout || !one.connection->reusable(); });
  start_sweeping();
}

void ConnectionPool::close() {
  closed_ = true;
  sweep_timer_.stop();
  idle_.clear();
}

std::size_t ConnectionPool::idle_connections() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(idle_, [](const Idle& one) { return one.connection->reusable(); }));
}

}  // namespace hawser::protocol::http
