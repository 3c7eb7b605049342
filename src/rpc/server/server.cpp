#include "hawser/server.h"

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/decimal_text.h"
#include "base/log_line.h"
#include "base/misuse.h"
#include "base/try.h"
#include "hawser/detail/loop_access.h"
#include "hawser/protocols.h"
#include "hawser/server_counter_rows.h"
#include "os/pin_thread.h"
#include "os/process_id.h"
#include "rpc/server/interception.h"
#include "rpc/server/server_state.h"

namespace hawser {

using rpc::ServerLoop;

Server::Server(Loop* loop, std::shared_ptr<transport::Network> network, ServerOptions options)
    : state_(new State(std::move(network), std::move(options))) {
  state_->callers_loop = loop;
}

Server::~Server() {
  // The state belongs to the parent process, including the descriptors that the loops' pollers watch. The child must
  // not destroy it. A child that ends is usual; a daemon that ends has served nothing. The destructor may run within
  // exit(), whose status stays.
  if (state_->in_child()) {
    if (leads_session() && state_->orphaned()) report_misuse(State::orphan_text);
    static_cast<void>(state_.release());
    return;
  }
  if (state_->callers_loop != nullptr) detail::LoopAccess::check_thread(*state_->callers_loop);
  const auto serving = [this] { return !state_->loops.empty() && state_->loops.front()->serving(); };
  if (state_->on_own_loop() || state_->offloaded() ||
      (state_->callers_loop != nullptr && Loop::current() == state_->callers_loop && serving())) {
    misuse(
        "a Server was destroyed by one of its own handlers, or by a callback of a token that it stops, which still "
        "needs it: stop it there, and let another thread or task destroy it");
  }
  if (state_->callers_loop == nullptr) stop(Duration::zero());
}

void Server::add_method(detail::ServedMethod method) {
  if (state_->started) throw std::logic_error("hawser: register handlers before the server starts");
  state_->shared.dispatcher.add(std::move(method));
}

void Server::add_interceptor(std::shared_ptr<detail::Interceptor<IncomingCall>> interceptor) {
  if (state_->started) throw std::logic_error("hawser: add interceptors before the server starts");
  state_->shared.interceptors.push_back(std::move(interceptor));
}

void Server::enable(ProtocolSpec protocol) {
  if (state_->started) throw std::logic_error("hawser: enable protocols before the server starts");
  rpc::ProtocolList& list = state_->shared.protocols;
  const auto same =
      std::find_if(list.begin(), list.end(), [&](const auto& one) { return one->name() == protocol.name(); });
  if (same != list.end()) {
    *same = protocol.protocol();
  } else {
    list.push_back(protocol.protocol());
  }
}

void Server::enable(TransportSpec transport) { state_->transports().enable(std::move(transport)); }

Result<void> Server::start() { return state_->start(); }

Result<void> Server::run() {
  if (state_->callers_loop != nullptr) {
    return fail(ErrorCode::invalid_argument, "this server is on a loop of the caller's: start() it and run that loop");
  }
  return state_->run();
}

void Server::stop(Duration grace) {
  state_->refuse_orphan();
  if (state_->in_child()) return;
  if (state_->offloaded()) {
    throw std::logic_error(
        "hawser: stop() was called by an offloaded handler of this server, for whose end it would wait: let another "
        "thread call it");
  }
  state_->stop(grace);
}

Task<void> Server::shut_down(Duration grace) { return state_->shut_down(grace); }

Result<void> Server::spawn_work(std::unique_ptr<detail::BackgroundWork> work) { return state_->spawn(std::move(work)); }

std::vector<Loop*> Server::loops() const { return state_->list_loops(); }

std::string Server::address() const { return state_->address; }

ServerCounters Server::counters() const { return state_->counters(); }

std::vector<std::shared_ptr<transport::Transport>> Server::transports() const {
  return state_->shared.network->transports(state_->shared.options.transports);
}
std::shared_ptr<detail::RegionTable> Server::regions() const { return state_->shared.regions; }

// ---- State ----

bool Server::State::in_child() const noexcept {
  const int starter = process.load();
  return starter != 0 && starter != process_id();
}

bool Server::State::orphaned() const noexcept {
  return callers_loop == nullptr && in_child() && !process_exists(process.load());
}

void Server::State::refuse_orphan() const noexcept {
  if (orphaned()) misuse(orphan_text);
}

bool Server::State::owns(const Loop* loop) const noexcept {
  const std::lock_guard guard(counting);
  return std::find(loops_known.begin(), loops_known.end(), loop) != loops_known.end();
}

bool Server::State::on_own_loop() const noexcept { return owns(Loop::current()); }

bool Server::State::offloaded() const noexcept {
  const Loop* const here = Loop::offloading();
  return here != nullptr && (here == callers_loop || owns(here));
}

TransportOptions& Server::State::transports() {
  if (started) throw std::logic_error("hawser: enable transports before the server starts");
  return shared.options.transports;
}

struct Server::State::StopOrder final : detail::Posted {
  StopOrder(State& server, std::size_t number) noexcept : state(server), index(number) {}
  void run() override {
    if (index == 0 && state.accept_waiting()) {
      try {
        return state.own_loops[0]->post(std::unique_ptr<detail::Posted>(new StopOrder(state, 0)));
      } catch (const std::bad_alloc&) {
        // The end of the listener resets what is left.
      }
    }
    if (index == 0) state.stop_accepting();
    state.loops[index]->begin_shut_down(Duration(state.stop_grace.load()), state.loop_ends[index].get());
  }
  State& state;
  const std::size_t index;
};

bool Server::State::accept_waiting() noexcept {
  try {
    return listener != nullptr && listener->accept_waiting();
  } catch (const std::exception&) {
    return false;  // No memory, not even for the line in the log.
  }
}

// The mailboxes of the other loops have the accepted connections before the order to stop.
void Server::State::stop_accepting() noexcept {
  listener.reset();
  try {
    for (std::size_t i = 1; i < own_loops.size(); ++i) {
      std::unique_ptr<detail::Posted> order = std::move(stop_orders[i]);
      if (order == nullptr) order = std::make_unique<StopOrder>(*this, i);  // A stop with a shorter grace.
      own_loops[i]->post(std::move(order));
    }
  } catch (const std::bad_alloc&) {
    // The loops stop nevertheless, within the grace that was requested before.
  }
}

namespace {

// The server whose loop runs on this thread; null on all other threads.
thread_local const void* serving_here = nullptr;

}  // namespace

Result<void> Server::State::start() {
  if (in_child()) {
    return fail(ErrorCode::invalid_argument,
                "the server was started by the parent of this process: make another one, or call daemon() or fork() "
                "before start()");
  }
  process.store(process_id());
  if (callers_loop != nullptr) detail::LoopAccess::check_thread(*callers_loop);
  const std::lock_guard lock(lifecycle);
  if (std::exchange(started, true)) return fail(ErrorCode::invalid_argument, "the server was started before");
  if (stop_wanted.load()) {
    return fail(ErrorCode::cancelled, "stop() was called before the server started: construct another server");
  }
  Result<void> begun;
  try {
    begun = begin();
  } catch (const std::exception& error) {
    begun = fail(ErrorCode::unavailable, std::string("the server cannot start: ") + error.what());
  }
  if (!begun) {
    notify_loops(Duration::zero());
    end_loops();
  }
  return begun;
}

Result<void> Server::State::begin() {
  TRY(rpc::check_memory(shared.options));
  TRY(negotiate::TransportList&& chosen, negotiate::choose_transports(shared.options.transports, *shared.network));
  shared.transports = std::move(chosen);
  if (shared.options.describe) schema.begin();  // Before the interceptors, which see these methods too.
  for (const auto& protocol : shared.protocols) {
    const rpc::PortProtocol::RouteNames names = protocol->route_names();
    shared.dispatcher.add_routes(protocol.get(), names.counted, names.others);
  }
  if (!shared.interceptors.empty() && !std::exchange(intercepted, true)) {
    shared.dispatcher.change([this](detail::ServedMethod& method) {
      method.handler =
          std::make_unique<rpc::InterceptedHandler>(std::move(method.handler), shared.interceptors, method);
    });
  }
  if (shared.options.security != nullptr) {
    TRY(shared.options.security->prepare());
    shared.alpn = rpc::alpn_names(shared.protocols);
  }
  TRY(hold_latency());
  if (callers_loop != nullptr) {
    {
      const std::lock_guard guard(counting);
      loops.push_back(std::make_unique<ServerLoop>(*callers_loop, shared));
    }
    loops.back()->prepare();
    TRY(listen());
    begin_background();
    return {};
  }
  const unsigned count = shared.options.threads;
  if (count == 0) {
    return fail(ErrorCode::invalid_argument, "ServerOptions::threads is 0: use 1 or more, or give the server a loop");
  }
  {
    const std::lock_guard guard(counting);
    for (unsigned i = 0; i < count; ++i) {
      own_loops.push_back(std::make_unique<Loop>(shared.options.loop));
      loops_known.push_back(own_loops.back().get());
      loops.push_back(std::make_unique<ServerLoop>(*own_loops.back(), shared));
    }
  }
  TRY(listen());
  TRY(start_threads());
  begin_background();
  return {};
}

Result<void> Server::State::spawn(std::unique_ptr<detail::BackgroundWork> work) {
  if (in_child()) {
    return fail(ErrorCode::invalid_argument, "the server was started by the parent of this process: make another one");
  }
  const std::lock_guard guard(counting);
  if (stop_wanted.load()) return fail(ErrorCode::unavailable, "background work was spawned after a stop of the server");
  if (!takes_background) {
    before_start.push_back(std::move(work));
    return {};
  }
  const auto here =
      std::find_if(loops.begin(), loops.end(), [](const auto& loop) { return &loop->loop() == Loop::current(); });
  ServerLoop& target = here != loops.end() ? **here : *loops[next_background++ % loops.size()];
  target.spawn(std::move(work));
  return {};
}

void Server::State::begin_background() {
  std::vector<std::unique_ptr<detail::BackgroundWork>> waiting;
  {
    const std::lock_guard guard(counting);
    takes_background = true;
    waiting.swap(before_start);
  }
  for (std::size_t i = 0; i < waiting.size(); ++i) loops[i % loops.size()]->spawn(std::move(waiting[i]));
}

std::vector<Loop*> Server::State::list_loops() const {
  refuse_orphan();
  const std::lock_guard guard(counting);
  std::vector<Loop*> list;
  for (const auto& loop : loops) list.push_back(&loop->loop());
  return list;
}

Result<void> Server::State::start_threads() {
  const std::size_t count = own_loops.size();
  parts_left.store(count);
  for (std::size_t i = 0; i < count; ++i) {
    loop_ends.push_back(std::make_unique<LoopEnd>(*this));
    stop_orders.push_back(std::make_unique<StopOrder>(*this, i));
    own_loops[i]->post([this, i] { loops[i]->prepare_if_possible(); });
  }
  threads.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    threads_serving.fetch_add(1);
    try {
      threads.emplace_back([this, i] { serve(i); });
    } catch (const std::system_error& error) {
      threads_serving.fetch_sub(1);
      parts_stopped(count - i);
      return fail(ErrorCode::limit_exceeded, "cannot start thread " + std::to_string(i + 1) + " of " +
                                                 std::to_string(count) + " (ServerOptions::threads): " + error.what());
    }
  }
  return {};
}

// Runs one thread of the server.
void Server::State::serve(std::size_t index) {
  Loop& loop = *own_loops[index];
  serving_here = this;
  if (const std::vector<int>& cpus = shared.options.cpus; !cpus.empty()) {
    const int cpu = cpus[index % cpus.size()];
    if (!pin_thread(cpu)) {
      log_line(loop.options().log, LogLevel::warning, "rpc",
               [cpu] { return "cannot pin a thread to processor " + std::to_string(cpu); });
    }
  }
  loop.run();
  threads_serving.fetch_sub(1);
  threads_serving.notify_all();
}

Result<void> Server::State::run() {
  if (Result<void> begun = start(); !begun) {
    if (begun.error().code == ErrorCode::cancelled) return {};
    return begun;
  }
  for (std::size_t serving = threads_serving.load(); serving != 0; serving = threads_serving.load()) {
    threads_serving.wait(serving);
  }
  const std::lock_guard lock(lifecycle);
  end_loops();
  return {};
}

Result<void> Server::State::hold_latency() {
  if (!shared.options.cpu_latency_max) return {};
  TRY(CpuLatency&& held, CpuLatency::hold(*shared.options.cpu_latency_max));
  cpu_latency = std::move(held);
  return {};
}

Result<void> Server::State::listen() {
  TRY(std::unique_ptr<transport::Listener> made,
      shared.network->listen(loops.front()->loop(), shared.options.listen, *this));
  listener = std::move(made);
  address = listener->address();
  return {};
}

// Runs on the first loop. Assigns connections to the loops in turn, which is even as long as connections live equally
// long.
void Server::State::accepted(std::unique_ptr<transport::Stream> stream) {
  ServerLoop& target = *loops[next_loop++ % loops.size()];
  if (&target == loops.front().get()) return target.adopt(std::move(stream));
  target.loop().post([&target, moved = std::move(stream)]() mutable { target.adopt(std::move(moved)); });
}

void Server::State::stop(Duration grace) {
  if (callers_loop != nullptr) {
    throw std::logic_error("hawser: a server on a loop of the caller's is stopped by co_await shut_down()");
  }
  stop_wanted.store(true);
  shared.health->stop();
  // A handler calls this. It would wait for its own end forever.
  if (serving_here == this) return notify_loops(grace);
  const std::lock_guard lock(lifecycle);
  notify_loops(grace);
  end_loops();
}

void Server::State::notify_loops(Duration grace) noexcept {
  Duration::rep least = stop_grace.load();
  while (grace.count() < least && !stop_grace.compare_exchange_weak(least, grace.count())) {
  }
  if (!stop_notified.exchange(true)) {
    log_stop(grace);
    if (!stop_orders.empty()) own_loops.front()->post(std::move(stop_orders.front()));
    return;
  }
  if (grace.count() >= least || own_loops.empty()) return;
  try {
    own_loops.front()->post(std::unique_ptr<detail::Posted>(new StopOrder(*this, 0)));
  } catch (const std::bad_alloc&) {
    // The loops stop nevertheless, within the grace that was requested before.
  }
}

void Server::State::parts_stopped(std::size_t count) noexcept {
  if (parts_left.fetch_sub(count) != count) return;
  for (const std::unique_ptr<Loop>& loop : own_loops) loop->stop();
}

void Server::State::log_stop(Duration grace) noexcept {
  if (address.empty() || loops.empty()) return;  // It has not served.
  log_line(loops.front()->loop().options().log, LogLevel::info, "rpc", [&] {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(grace).count();
    return "the server at " + address + " stops: " + count_text(shared.calls_in_flight.load(), "call") +
           " in flight on " + count_text(shared.connections.load(), "connection") + " may end within " +
           (grace == forever ? std::string("any time") : std::to_string(ms) + " ms");
  });
}

void Server::State::log_stopped(const Loop& loop) const noexcept {
  if (address.empty()) return;
  log_line(loop.options().log, LogLevel::info, "rpc", [&] { return "the server at " + address + " has stopped"; });
}

void Server::State::end_loops() {
  std::vector<std::unique_ptr<detail::BackgroundWork>> dropped;  // Destroyed without the lock: it is the application's.
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  listener.reset();
  if (!own_loops.empty()) log_stopped(*own_loops.front());
  {
    const std::lock_guard guard(counting);
    ended_counters = sum();
    // All that they use ends with them below. The value of this moment would be shown for ever.
    for (const auto& row : server_counter_rows<std::uint64_t>) {
      if (row.metric.kind == MetricKind::gauge) ended_counters.*row.value = 0;
    }
    takes_background = false;
    dropped.swap(before_start);
    loops.clear();
  }
  loop_ends.clear();
  stop_orders.clear();
  own_loops.clear();
  {
    const std::lock_guard guard(counting);
    loops_known.clear();
  }
  shared.transports.clear();
  cpu_latency.reset();
}

Task<void> Server::State::shut_down(Duration grace) {
  if (callers_loop == nullptr) throw std::logic_error("hawser: a server with loops of its own is stopped by stop()");
  const void* const caller = co_await detail::AwaitingFrame();
  if (!loops.empty() && callers_loop->after(grace) == Time::max() && loops.front()->handles(caller)) {
    throw std::logic_error(
        "hawser: shut_down(forever) is awaited by a handler of this server, for whose end it would wait for ever: "
        "name a grace, or let another task call it");
  }
  stop_wanted.store(true);
  shared.health->stop();
  while (accept_waiting()) co_await callers_loop->sleep(Duration::zero());
  stop_accepting();
  if (loops.empty()) co_return;
  log_stop(grace);
  co_await loops.front()->shut_down(grace);
  log_stopped(loops.front()->loop());
  cpu_latency.reset();
}

ServerCounters Server::State::counters() const {
  refuse_orphan();
  const std::lock_guard guard(counting);
  return sum();
}

ServerCounters Server::State::sum() const {
  ServerCounters all = ended_counters;
  for (const auto& loop : loops) {
    for (std::size_t i = 0; i < server_counter_rows<std::uint64_t>.size(); ++i) {
      all.*server_counter_rows<std::uint64_t>[i].value +=
          (loop->counters().*server_counter_rows<OwnedCounter>[i].value).get();
    }
    all.receive_bytes += loop->receive_bytes();
  }
  all.calls_in_flight = shared.calls_in_flight.load();
  return all;
}

}  // namespace hawser
