#include "client.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <future>
#include <utility>

#include "convert.h"

namespace hawser::python {
namespace {

Error closed_error() { return Error::of_call(ErrorCode::unavailable, "the client is closed: connect another one"); }

}  // namespace

// ---- Work ----

Work::Work(std::shared_ptr<ClientCore> client, std::shared_ptr<Hub> hub, nb::handle future)
    : client_(std::move(client)), hub_(std::move(hub)), future_(Reference::borrow(future.ptr())) {}

void Work::finish() {
  const std::shared_ptr<Work> self = shared_from_this();
  coroutine_ = nullptr;
  if (std::exchange(ended_, true)) return;
  client_->on_end(*this);
  hub_->push(self);
}

void Work::fail(Error error) {
  error_ = std::move(error);
  finish();
}

void Work::cancel() {
  const std::shared_ptr<ClientCore> client = client_;
  if (client == nullptr || client->generation_ != process_generation()) return;  // Delivered, or of the parent process.
  const std::lock_guard lock(client->mutex_);
  if (client->closed_) return;
  client->engine_->loop().post([self = shared_from_this()] {
    if (self->ended_) return;
    if (self->coroutine_) std::exchange(self->coroutine_, nullptr).destroy();
    self->fail(Error::of_call(ErrorCode::cancelled, "the caller cancelled the call"));
  });
}

bool Work::deliver() {
  const Reference future = std::move(future_);
  nb::object result;
  bool delivered = true;
  try {
    const nb::handle waiting(future.get());
    if (!nb::cast<bool>(waiting.attr("done")())) {
      nb::object failure;
      if (error_) {
        failure = exception_of(*error_);
      } else {
        try {
          result = value();
        } catch (nb::python_error& thrown) {
          failure = nb::borrow(thrown.value());
        }
      }
      if (failure.is_valid()) {
        waiting.attr("set_exception")(failure);
      } else {
        waiting.attr("set_result")(result);
      }
    }
  } catch (nb::python_error& thrown) {
    thrown.restore();
    delivered = false;
  }
  release();
  client_.reset();
  return delivered;
}

// ---- ClientCore ----

ClientCore::ClientCore(std::string address, ClusterOptions options, bool grpc)
    : address_(std::move(address)),
      named_(!options.naming.empty()),
      grpc_(grpc),
      generation_(process_generation()),
      call_timeout_(options.pool.client.call_timeout),
      engine_(Engine::get()),
      calls_max_(options.pool.client.calls_in_flight_max),
      options_(std::move(options)) {}

std::shared_ptr<ClientCore> ClientCore::make(std::string address, ClusterOptions options, bool grpc) {
  std::shared_ptr<ClientCore> made(new ClientCore(std::move(address), std::move(options), grpc));
  Engine::add(made);
  return made;
}

ClientCore::~ClientCore() {
  if (client_ == nullptr && cluster_ == nullptr) return;
  if (generation_ != process_generation()) {
    // They belong to the parent process.
    static_cast<void>(client_.release());
    static_cast<void>(cluster_.release());
    return;
  }
  // They are destroyed on the loop.
  engine_->loop().post([client = std::shared_ptr<Client>(std::move(client_)),
                        cluster = std::shared_ptr<ClusterClient>(std::move(cluster_))] {
    if (client != nullptr) client->close();
  });
}

void ClientCore::require_address(std::string_view what) const {
  if (!named_) return;
  raise(Error::of_call(ErrorCode::invalid_argument, std::string(what) + " is that of one server, and " + address_ +
                                                        " is a name: connect to the server's address"));
}

void ClientCore::require_descriptions() const {
  if (!grpc_) return;
  throw nb::type_error(
      "hawser: a server of gRPC does not describe its methods: call those of a class that hawser.protoc has generated");
}

void ClientCore::submit(std::shared_ptr<Work> work) {
  require_own_process(generation_, "client");
  const std::lock_guard lock(mutex_);
  if (closed_) raise(closed_error());
  submitted_.push_back(std::move(work));
  if (submitted_.size() == 1) engine_->loop().post([self = shared_from_this()] { self->run_submitted(); });
}

void ClientCore::remove_registered(Bytes memory) noexcept {
  const auto found = std::ranges::find_if(
      registered_, [&](Bytes one) { return one.data() == memory.data() && one.size() == memory.size(); });
  if (found != registered_.end()) registered_.erase(found);
}

bool ClientCore::has_registered(Bytes memory) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  return std::ranges::any_of(registered_, [&](Bytes one) {
    const auto place = begin - reinterpret_cast<std::uintptr_t>(one.data());  // Wraps around if it is before `one`.
    return place <= one.size() && memory.size() <= one.size() - place;
  });
}

void ClientCore::run_submitted() {
  std::vector<std::shared_ptr<Work>> works;
  {
    const std::lock_guard lock(mutex_);
    works.swap(submitted_);
  }
  if (options_) open();
  for (const std::shared_ptr<Work>& work : works) {
    if (running_.size() < calls_max_ && waiting_.empty()) {
      start(work);
    } else {
      waiting_.push_back(work);
    }
  }
}

void ClientCore::open() {
  // On the thread of the loop.
  ClusterOptions options = *std::exchange(options_, std::nullopt);
  if (!named_) {
    client_ = std::make_unique<Client>(engine_->loop(), std::move(options.pool.client));
    return;
  }
  Result<std::unique_ptr<ClusterClient>> made = ClusterClient::create(engine_->loop(), address_, std::move(options));
  if (made) {
    cluster_ = std::move(*made);
  } else {
    refused_ = std::move(made.error());
  }
}

void ClientCore::start(const std::shared_ptr<Work>& work) {
  if (work->ended_) return;
  work->index_ = running_.size();
  running_.push_back(work);
  if (client_ == nullptr && cluster_ == nullptr) return work->fail(refused_.value_or(closed_error()));
  work->begin();
}

void ClientCore::remove(Work& work) {
  const std::size_t index = work.index_;
  if (index >= running_.size() || running_[index].get() != &work) return;
  std::swap(running_[index], running_.back());
  running_[index]->index_ = index;
  running_.pop_back();
}

void ClientCore::on_end(Work& work) {
  remove(work);
  start_waiting();
}

void ClientCore::start_waiting() {
  if (std::exchange(starting_, true)) return;  // A work that ends at once; the caller goes on with the next one.
  full_ = false;
  while (!full_ && !waiting_.empty() && running_.size() < calls_max_) {
    const std::shared_ptr<Work> next = std::move(waiting_.front());
    waiting_.pop_front();
    start(next);
  }
  starting_ = false;
}

void ClientCore::wait_for_turn(Work& work) {
  const std::shared_ptr<Work> self = work.shared_from_this();
  work.coroutine_ = nullptr;
  remove(work);
  waiting_.push_front(self);
  full_ = true;
  if (!std::exchange(retrying_, true)) retry(shared_from_this());
}

detail::Serving ClientCore::retry(std::shared_ptr<ClientCore> client) {
  co_await client->engine_->loop().sleep(retry_interval);
  client->retrying_ = false;
  client->start_waiting();
}

Task<Result<void>> ClientCore::connect() {
  if (cluster_ != nullptr) co_return Result<void>();  // Each call finds a server.
  co_return co_await client_->connect(address_);
}

void ClientCore::close() {
  options_.reset();
  const std::unique_ptr<Client> client = std::move(client_);
  const std::unique_ptr<ClusterClient> cluster = std::move(cluster_);
  while (!running_.empty()) {
    Work& work = *running_.back();
    if (work.coroutine_) std::exchange(work.coroutine_, nullptr).destroy();
    work.fail(closed_error());
  }
}

void ClientCore::abort() noexcept {
  if (generation_ != process_generation()) return;
  std::promise<void> done;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    engine_->loop().post([this, &done] {
      run_submitted();
      close();
      done.set_value();
    });
  }
  done.get_future().wait();
}

}  // namespace hawser::python
