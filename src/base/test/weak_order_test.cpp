// The protocols without locks between threads and processes, in a model of the order of memory of 64-bit Arm: a
// thread executes its steps in any order that they permit, and all others see a store at the same time. The model tries
// every execution. A protocol must be right, and wrong as soon as any one of its orders is left out.
//
// Like the architecture, the model does not speculate stores. It does not forward a thread's own stores either, which
// these protocols do not use. The orders are copied from the code by hand: change both together.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace hawser {
namespace {

enum class StepKind : std::uint8_t { store, load, exchange, fence };
enum class StepOrder : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };

constexpr int any_value = -1;
constexpr int no_result = -1;

// One access of a thread to a place. A load and an exchange have a result; all results of a protocol are apart.
struct OrderedStep {
  StepKind kind;
  StepOrder order;
  int place = 0;
  int value = 0;
  int result = no_result;
  int expected = any_value;  // An exchange stores only if it has read this.
  int when = no_result;      // The step is made only if this result is `is`.
  int is = 0;

  OrderedStep if_result(int which, int wanted) const {
    OrderedStep step = *this;
    step.when = which;
    step.is = wanted;
    return step;
  }
};

using enum StepOrder;
OrderedStep store_step(int place, int value, StepOrder order) { return {StepKind::store, order, place, value}; }
OrderedStep load_step(int result, int place, StepOrder order) { return {StepKind::load, order, place, 0, result}; }
OrderedStep exchange_step(int result, int place, int value, StepOrder order, int expected = any_value) {
  return {StepKind::exchange, order, place, value, result, expected};
}
OrderedStep fence_step(StepOrder order) { return {StepKind::fence, order}; }

struct OrderedProtocol {
  std::array<std::vector<OrderedStep>, 2> threads;
  std::array<int, 4> memory;                                                             // At first.
  std::function<bool(const std::array<int, 6>& result, const std::array<int, 4>&)> bad;  // At the end.
};

// An exchange is two steps of the processor: the second one fails if another thread stored in between. Then the
// execution is left out, because another one has both steps later.
class WeakMachine {
 public:
  explicit WeakMachine(const OrderedProtocol& protocol) : protocol_(protocol) {
    for (int thread = 0; thread < 2; ++thread) {
      for (const OrderedStep& step : protocol.threads[static_cast<std::size_t>(thread)]) add(thread, step);
    }
  }
  // True if an execution ends badly.
  bool finds_fault() {
    State first;
    first.memory = protocol_.memory;
    return search(first);
  }

 private:
  struct Part {
    OrderedStep step;
    int thread;
    bool loads;
    bool stores;
    bool acquires;
    bool releases;
  };
  struct State {
    std::uint32_t done = 0;  // A bit for each part.
    std::array<int, 4> memory{};
    std::array<int, 6> results{};
    std::array<int, 2> reserved{any_value, any_value};  // Places of exchanges that have loaded and not stored.
    auto operator<=>(const State&) const = default;
  };

  void add(int thread, const OrderedStep& step) {
    const bool fence = step.kind == StepKind::fence;
    const bool acquires = step.order != relaxed && step.order != release;
    const bool releases = step.order != relaxed && step.order != acquire;
    const bool loads = step.kind == StepKind::load || step.kind == StepKind::exchange;
    if (loads || fence) parts_.push_back({step, thread, loads, false, acquires, fence && releases});
    if (step.kind == StepKind::store || step.kind == StepKind::exchange) {
      parts_.push_back({step, thread, false, true, false, releases});
    }
  }

  // True if `a` comes before `b`, which is behind it in the same thread.
  static bool ordered(const Part& a, const Part& b) {
    const bool sequential = a.step.order == seq_cst && b.step.order == seq_cst;
    const bool a_fence = a.step.kind == StepKind::fence;
    const bool b_fence = b.step.kind == StepKind::fence;
    if (a_fence && b_fence) return true;
    if (a_fence) return a.acquires || (a.releases && b.stores);
    if (b_fence) return b.releases || (b.acquires && a.loads);
    return sequential || a.acquires || b.releases || a.step.place == b.step.place;
  }

  // True if the conditions of a step hold. `known` is false if one of them has not been loaded.
  bool is_taken(const State& state, const OrderedStep& step, bool& known) const {
    if (step.when == no_result) return true;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (!parts_[i].loads || parts_[i].step.result != step.when) continue;
      if ((state.done >> i & 1U) == 0) known = false;
      return is_taken(state, parts_[i].step, known) && state.results[static_cast<std::size_t>(step.when)] == step.is;
    }
    ADD_FAILURE() << "no step has the result " << step.when;
    return false;
  }

  bool search(const State& state) {
    if (!seen_.insert(state).second) return false;
    if (state.done + 1 == std::uint32_t{1} << parts_.size()) return protocol_.bad(state.results, state.memory);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (is_ready(state, i) && execute(state, i)) return true;
    }
    return false;
  }

  bool is_ready(const State& state, std::size_t index) const {
    if ((state.done >> index & 1U) != 0) return false;
    for (std::size_t i = 0; i < index; ++i) {
      const bool before = parts_[i].thread == parts_[index].thread && ordered(parts_[i], parts_[index]);
      if (before && (state.done >> i & 1U) == 0) return false;
    }
    return true;
  }

  bool execute(State state, std::size_t index) {
    const auto& [step, thread, loads, stores, acquires, releases] = parts_[index];
    const auto self = static_cast<std::size_t>(thread);
    int& memory = state.memory[static_cast<std::size_t>(step.place)];
    state.done |= std::uint32_t{1} << index;
    if (loads) {  // Also before its condition is known.
      state.results[static_cast<std::size_t>(step.result)] = memory;
      if (step.kind == StepKind::exchange) state.reserved[self] = step.place;
    }
    if (stores) {
      bool known = true;
      bool taken = is_taken(state, step, known);
      if (!known) return false;
      const bool exchanges = step.kind == StepKind::exchange;
      if (exchanges && step.expected != any_value) {
        taken = taken && state.results[static_cast<std::size_t>(step.result)] == step.expected;
      }
      if (taken && exchanges && state.reserved[self] != step.place) return false;
      if (taken) {
        memory = step.value;
        if (state.reserved[1 - self] == step.place) state.reserved[1 - self] = any_value;
      }
      if (exchanges) state.reserved[self] = any_value;
    }
    return search(state);
  }

  const OrderedProtocol& protocol_;
  std::vector<Part> parts_;
  std::set<State> seen_;
};

bool finds_fault(const OrderedProtocol& protocol) { return WeakMachine(protocol).finds_fault(); }

void expect_each_order_is_needed(const OrderedProtocol& protocol) {
  EXPECT_FALSE(finds_fault(protocol));
  for (std::size_t thread = 0; thread < 2; ++thread) {
    for (std::size_t i = 0; i < protocol.threads[thread].size(); ++i) {
      OrderedProtocol weaker = protocol;
      if (std::exchange(weaker.threads[thread][i].order, relaxed) == relaxed) continue;
      EXPECT_TRUE(finds_fault(weaker)) << "without the order of step " << i << " of thread " << thread;
    }
  }
}

// Known results for this architecture.
TEST(WeakOrder, TheModelReordersAsTheProcessorDoes) {
  const auto both_old = [](const auto& result, const auto&) { return result[0] == 0 && result[1] == 0; };
  const auto store_then_load = [&](StepOrder store, StepOrder load) {
    return finds_fault({.threads = {{{store_step(0, 1, store), load_step(0, 1, load)},
                                     {store_step(1, 1, store), load_step(1, 0, load)}}},
                        .memory = {},
                        .bad = both_old});
  };
  EXPECT_TRUE(store_then_load(release, acquire));
  EXPECT_FALSE(store_then_load(seq_cst, seq_cst));
  const auto exchange_then_load = [&](StepOrder exchange, StepOrder load) {
    return finds_fault({.threads = {{{exchange_step(2, 0, 1, exchange), load_step(0, 1, load)},
                                     {exchange_step(3, 1, 1, exchange), load_step(1, 0, load)}}},
                        .memory = {},
                        .bad = both_old});
  };
  EXPECT_TRUE(exchange_then_load(acq_rel, acquire)) << "a load passes the store of an exchange";
  EXPECT_FALSE(exchange_then_load(seq_cst, seq_cst));
}

// RingWriter and RingReader: the sender writes one message over another one.
TEST(WeakOrder, Ring) {
  enum { bytes, tail, head };
  enum { seen_tail, message, seen_head };
  OrderedProtocol ring{
      .threads = {{{store_step(bytes, 1, relaxed), store_step(tail, 1, release),
                    load_step(seen_head, head, relaxed),  // The condition orders the store behind it.
                    store_step(bytes, 2, relaxed).if_result(seen_head, 1)},
                   {load_step(seen_tail, tail, acquire), load_step(message, bytes, relaxed),
                    store_step(head, 1, release).if_result(seen_tail, 1)}}},
      .memory = {},
      .bad = [](const auto& result, const auto&) { return result[seen_tail] == 1 && result[message] != 1; }};
  expect_each_order_is_needed(ring);
}

// Sleeper::arm() and PeerWaker::wake(). The sleeper missed the tail, and nobody rings.
TEST(WeakOrder, SleepingSide) {
  enum { tail, asleep, bell };
  enum { seen_asleep, was_asleep, seen_tail };
  expect_each_order_is_needed(
      {.threads = {{{store_step(tail, 1, relaxed), fence_step(seq_cst), load_step(seen_asleep, asleep, relaxed),
                     exchange_step(was_asleep, asleep, 0, relaxed).if_result(seen_asleep, 1),
                     store_step(bell, 1, relaxed).if_result(was_asleep, 1)},
                    {store_step(asleep, 1, relaxed), fence_step(seq_cst), load_step(seen_tail, tail, relaxed)}}},
       .memory = {},
       .bad = [](const auto& result, const auto& memory) { return result[seen_tail] == 0 && memory[bell] == 0; }});
}

// Mailbox and Loop::post(): work is not seen by a loop that falls asleep and is not woken.
TEST(WeakOrder, SleepingLoop) {
  enum { mailbox, sleeping, wake };
  enum { before, seen_sleeping, was_sleeping, seen_work };
  expect_each_order_is_needed(
      {.threads = {{{exchange_step(before, mailbox, 1, seq_cst), load_step(seen_sleeping, sleeping, seq_cst),
                     exchange_step(was_sleeping, sleeping, 0, relaxed).if_result(seen_sleeping, 1),
                     store_step(wake, 1, relaxed).if_result(was_sleeping, 1)},
                    {store_step(sleeping, 1, seq_cst), load_step(seen_work, mailbox, seq_cst)}}},
       .memory = {},
       .bad = [](const auto& result, const auto& memory) { return result[seen_work] == 0 && memory[wake] == 0; }});
}

// Mailbox: what a producer wrote is there when the consumer has its work.
TEST(WeakOrder, Mailbox) {
  enum { work, mailbox };
  enum { before, taken, seen_work };
  expect_each_order_is_needed(
      {.threads = {{{store_step(work, 1, relaxed), exchange_step(before, mailbox, 1, release)},
                    {exchange_step(taken, mailbox, 0, acquire), load_step(seen_work, work, relaxed)}}},
       .memory = {},
       .bad = [](const auto& result, const auto&) { return result[taken] == 1 && result[seen_work] == 0; }});
}

// A read slot: the sender moves the payload and its owner writes to the old memory, while the receiver reads there.
TEST(WeakOrder, ReadSlot) {
  enum { payload, state };
  enum { slot_offered, slot_moved, slot_done };
  enum { seen_by_sender, seen_by_receiver, bytes };
  expect_each_order_is_needed(
      {.threads = {{{exchange_step(seen_by_sender, state, slot_moved, acquire, slot_offered),
                     store_step(payload, 1, relaxed)},
                    {load_step(bytes, payload, relaxed),
                     exchange_step(seen_by_receiver, state, slot_done, release, slot_offered)}}},
       .memory = {},
       .bad = [](const auto& result, const auto&) {
         return result[seen_by_receiver] == slot_offered && result[bytes] == 1;
       }});
}

// SpanRing: a reader takes a slot for complete that is being written again.
TEST(WeakOrder, SpanRing) {
  enum { version, data };
  enum { first, bytes, second };
  const auto mixed = [](const auto& result, const auto&) {
    return result[first] == result[second] && result[first] % 2 == 0 && result[bytes] != result[first];
  };
  expect_each_order_is_needed({.threads = {{{store_step(version, 1, relaxed), fence_step(release),
                                             store_step(data, 2, relaxed), store_step(version, 2, release)},
                                            {load_step(first, version, acquire), load_step(bytes, data, relaxed),
                                             fence_step(acquire), load_step(second, version, relaxed)}}},
                               .memory = {},
                               .bad = mixed});
}

// RemoteIndex and OneSidedReader: an entry moves to another cell. A second find() reads the old one after the new one.
TEST(WeakOrder, IndexOfCopies) {
  enum { old_cell, new_cell };
  enum { seen_new, seen_old };
  expect_each_order_is_needed(
      {.threads = {{{store_step(old_cell, 0, relaxed), fence_step(release), store_step(new_cell, 2, relaxed)},
                    {load_step(seen_new, new_cell, relaxed), fence_step(acquire),
                     load_step(seen_old, old_cell, relaxed)}}},
       .memory = {1},
       .bad = [](const auto& result, const auto&) { return result[seen_new] == 2 && result[seen_old] == 1; }});
}

}  // namespace
}  // namespace hawser
