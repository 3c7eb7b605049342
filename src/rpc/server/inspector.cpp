#include "rpc/server/inspector.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "exec/loop_answer.h"
#include "hawser/detail/loop_access.h"
#include "hawser/protocols.h"
#include "rpc/server/loop_report.h"
#include "rpc/server/server_state.h"

namespace hawser::rpc {
namespace {

using exec::LoopAnswer;

// Slots and calls that are visited in one tick.
constexpr std::size_t visits_max = 1024;
// Calls of one connection that are visited. They cannot be visited in parts.
constexpr std::size_t connection_calls_max = 4096;

struct ConnectionWalk {
  std::size_t loop = 0;
  std::size_t slot = 0;
  std::size_t limit = 0;
  bool ended = false;
  std::vector<ConnectionReport> rows;
};

void walk(ServerLoop& loop, const std::shared_ptr<LoopAnswer<ConnectionWalk>>& answer) {
  ConnectionWalk& at = answer->value;
  const SessionTable& sessions = loop.sessions();
  for (std::size_t visits = 0; at.slot < sessions.slots() && at.rows.size() < at.limit; ++at.slot) {
    if (++visits > visits_max) return loop.inspect([answer](ServerLoop& again) { walk(again, answer); });
    PortSession* const* const session = sessions.at(at.slot);
    if (session == nullptr) continue;
    at.rows.push_back((*session)->report());
    at.rows.back().loop = at.loop;
  }
  at.ended = at.slot >= sessions.slots();
  answer->there.store(true, std::memory_order_release);
}

struct CallWalk {
  std::size_t loop = 0;
  std::size_t slot = 0;
  std::size_t limit = 0;
  std::size_t all = 0;
  std::vector<CallReport> rows;  // A heap, the youngest first.
};

bool older(const CallReport& a, const CallReport& b) noexcept { return a.age > b.age; }

void visit(ServerLoop& loop, CallWalk& at, const PortSession& session, std::size_t& visits) {
  at.all += session.active_calls();
  std::size_t seen = 0;
  session.active().each([&](const detail::ActiveCall& call) {
    ++visits;
    const Time now = loop.loop().now();
    const Duration age = now - call.begun;
    if (at.rows.size() >= at.limit && at.rows.front().age >= age) return ++seen < connection_calls_max;
    CallReport row{.loop = at.loop,
                   .slot = at.slot,
                   .serial = loop.sessions().generation(at.slot),
                   .call = call.id(),
                   .method = call.method == nullptr ? std::string_view("(none)") : std::string_view(call.method->name),
                   .peer = session.peer(),
                   .protocol = session.protocol(),
                   .age = age,
                   .waits_for = call.waits_for()};
    if (call.request().deadline) row.left = *call.request().deadline - now;
    at.rows.push_back(std::move(row));
    std::ranges::push_heap(at.rows, older);
    if (at.rows.size() > at.limit) {
      std::ranges::pop_heap(at.rows, older);
      at.rows.pop_back();
    }
    return ++seen < connection_calls_max;
  });
}

void walk(ServerLoop& loop, const std::shared_ptr<LoopAnswer<CallWalk>>& answer) {
  CallWalk& at = answer->value;
  for (std::size_t visits = 0; at.slot < loop.sessions().slots(); ++at.slot) {
    if (++visits > visits_max) return loop.inspect([answer](ServerLoop& again) { walk(again, answer); });
    if (const PortSession* const* const session = loop.sessions().at(at.slot)) visit(loop, at, **session, visits);
  }
  answer->there.store(true, std::memory_order_release);
}

}  // namespace

void MethodReport::add(const MethodCounters& loop) noexcept {
  for (std::size_t i = 0; i < by_code.size(); ++i) {
    const std::uint64_t count = loop.by_code[i].get();
    by_code[i] += count;
    calls += count;
    if (i != static_cast<std::size_t>(ErrorCode::ok)) errors += count;
  }
  for (std::size_t i = 0; i < method_value_rows<std::uint64_t>.size(); ++i) {
    this->*method_value_rows<std::uint64_t>[i].value += (loop.*method_value_rows<OwnedCounter>[i].value).get();
  }
}

void MethodReport::add(const MethodReport& other) noexcept {
  for (std::size_t i = 0; i < by_code.size(); ++i) by_code[i] += other.by_code[i];
  calls += other.calls;
  errors += other.errors;
  for (const auto& row : method_value_rows<std::uint64_t>) this->*row.value += other.*row.value;
}

// ---- Any thread ----

const ServerOptions& Inspector::options(const Server& server) { return server.state_->shared.options; }

std::vector<std::string> Inspector::protocols(const Server& server) {
  std::vector<std::string> names = {"hawser"};
  for (const auto& protocol : server.state_->shared.protocols) names.emplace_back(protocol->name());
  return names;
}

std::vector<std::string> Inspector::transports(const Server& server) {
  std::vector<std::string> names;
  for (const TransportSpec& one : options(server).transports.enabled) names.emplace_back(one.name());
  return names;
}

bool Inspector::stopping(const Server& server) { return server.state_->stop_wanted.load(); }

const std::shared_ptr<HealthState>& Inspector::health(const Server& server) { return server.state_->shared.health; }

bool Inspector::on_callers_loop(const Server& server) { return server.state_->callers_loop != nullptr; }

std::size_t Inspector::methods(const Server& server) { return server.state_->shared.dispatcher.all().size(); }

std::vector<const detail::ServedMethod*> Inspector::served_methods(const Server& server) {
  std::vector<const detail::ServedMethod*> list;
  server.state_->shared.dispatcher.each([&](const detail::ServedMethod& method) { list.push_back(&method); });
  return list;
}

std::vector<const MethodTable*> Inspector::tables(const Server& server) {
  const std::lock_guard guard(server.state_->counting);
  std::vector<const MethodTable*> tables;
  for (const MethodTable& one : server.state_->shared.methods) tables.push_back(&one);
  return tables;
}

MethodReport Inspector::method(const Server& server, const std::vector<const MethodTable*>& tables, std::size_t index) {
  MethodReport sum;
  sum.name = server.state_->shared.dispatcher.all()[index]->name;
  for (const MethodTable* const table : tables) {
    if (const MethodCounters* const one = table->read(index)) sum.add(*one);
  }
  return sum;
}

HistogramSnapshot Inspector::latency(const std::vector<const MethodTable*>& tables, std::size_t index) {
  static_assert(std::is_same_v<MethodCounters::Buckets, HistogramSnapshot::Buckets>);
  HistogramSnapshot sum;
  for (const MethodTable* const table : tables) {
    const MethodCounters* const one = table->read(index);
    if (one == nullptr) continue;
    for (std::size_t i = 0; i < sum.counts.size(); ++i) {
      const std::uint64_t count = one->latency[i].get();
      sum.counts[i] += count;
      sum.count += count;
    }
    sum.sum += one->latency_ns.get();
  }
  return sum;
}

std::vector<LoopReport> Inspector::loops(const Server& server) {
  const std::lock_guard guard(server.state_->counting);
  std::vector<LoopReport> all;
  for (const auto& loop : server.state_->loops) all.emplace_back(*loop);
  return all;
}

// ---- On a loop of the server ----

namespace {

// Posts to the loop of that number. False if there is none, or no more.
template <class Loops, class Work>
bool post(std::mutex& counting, const Loops& loops, std::size_t index, Work work) {
  const std::lock_guard guard(counting);
  if (index >= loops.size()) return false;
  loops[index]->inspect(std::move(work));
  return true;
}

}  // namespace

Task<Inspector::Connections> Inspector::connections(const Server& server, Loop& here, Position from,
                                                    std::size_t limit) {
  Server::State& state = *server.state_;
  Connections result;
  for (std::size_t loop = from.loop; result.rows.size() < limit; ++loop) {
    auto answer = std::make_shared<LoopAnswer<ConnectionWalk>>();
    answer->value.loop = loop;
    answer->value.slot = loop == from.loop ? from.slot : 0;
    answer->value.limit = limit - result.rows.size();
    if (!post(state.counting, state.loops, loop, [answer](ServerLoop& on) { walk(on, answer); })) co_return result;
    const bool there = co_await arrives(here, answer, wait_max);
    if (!there) {
      result.silent.push_back(loop);
      continue;
    }
    ConnectionWalk& walked = answer->value;
    for (ConnectionReport& row : walked.rows) result.rows.push_back(std::move(row));
    if (!walked.ended) result.next = Position{loop, walked.slot};
    if (walked.ended && result.rows.size() >= limit) result.next = Position{loop + 1, 0};
  }
  co_return result;
}

Task<Inspector::Calls> Inspector::calls(const Server& server, Loop& here, std::size_t limit) {
  Server::State& state = *server.state_;
  Calls result;
  for (std::size_t loop = 0;; ++loop) {
    auto answer = std::make_shared<LoopAnswer<CallWalk>>();
    answer->value.loop = loop;
    answer->value.limit = limit;
    if (!post(state.counting, state.loops, loop, [answer](ServerLoop& on) { walk(on, answer); })) break;
    const bool there = co_await arrives(here, answer, wait_max);
    if (!there) {
      result.silent.push_back(loop);
      continue;
    }
    result.all += answer->value.all;
    for (CallReport& row : answer->value.rows) result.rows.push_back(std::move(row));
  }
  std::ranges::sort(result.rows, older);
  if (result.rows.size() > limit) result.rows.resize(limit);
  co_return result;
}

Task<bool> Inspector::cancel(const Server& server, Loop& here, CallReport call) {
  Server::State& state = *server.state_;
  auto answer = std::make_shared<LoopAnswer<bool>>();
  const auto work = [answer, slot = call.slot, serial = call.serial, id = call.call](ServerLoop& on) {
    PortSession* const* const session = on.sessions().at(slot);
    if (session != nullptr && on.sessions().generation(slot) == serial) {
      answer->value =
          (*session)->cancel_call(id, Error::of_call(ErrorCode::cancelled, "an operator cancelled the call"));
    }
    answer->there.store(true, std::memory_order_release);
  };
  if (!post(state.counting, state.loops, call.loop, work)) co_return false;
  const bool there = co_await arrives(here, answer, wait_max);
  co_return there && answer->value;
}

}  // namespace hawser::rpc
