#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace hawser::kv {

// An operation on one key, as its client saw it.
struct Operation {
  enum class Kind : std::uint8_t { get, set, remove, compare_and_set, increment, clear };
  static constexpr std::int64_t never = INT64_MAX;

  Kind kind = Kind::get;
  std::int64_t begin = 0;
  std::int64_t end = never;    // never: the outcome is unknown, and the operation may have had its effect or not.
  std::string value = {};      // set, compare_and_set: what is written. get: what was read.
  std::uint64_t version = 0;   // set, successful compare_and_set: the new version. get: the version that was read.
  std::uint64_t expected = 0;  // compare_and_set.
  std::int64_t number = 0;     // increment: the sum.
  bool done = true;            // get, remove: the key existed. compare_and_set: the value was written.
};

// Decides whether the operations on one key, at most operations_max, have an order that agrees with their times and
// with what a store that executes them one by one returns. The key does not exist at the beginning. The search of Wing
// and Gong (1993), with the memory of visited states of Lowe (2017).
class LinearizabilityCheck {
 public:
  static constexpr std::size_t operations_max = 192;

  explicit LinearizabilityCheck(const std::vector<Operation>& history) : history_(history) {}

  bool linearizable() {
    all_known_.reset();
    for (std::size_t i = 0; i < history_.size(); ++i) {
      if (history_[i].end != Operation::never) all_known_.set(i);
    }
    return search({}, State());
  }

 private:
  using Chosen = std::bitset<operations_max>;

  struct State {
    bool present = false;
    std::string value = {};
    std::uint64_t version = 0;  // 0: not known yet, because nobody has seen it.
  };

  bool search(const Chosen& chosen, const State& state) {
    if ((chosen & all_known_) == all_known_) return true;
    if (!visited_
             .insert(chosen.to_string() + (state.present ? "+" : "-") + std::to_string(state.version) + ":" +
                     state.value)
             .second) {
      return false;
    }
    // An operation may be the next one if no other that is left has ended before it began.
    std::int64_t first_end = Operation::never;
    for (std::size_t i = 0; i < history_.size(); ++i) {
      if (!chosen[i]) first_end = std::min(first_end, history_[i].end);
    }
    for (std::size_t i = 0; i < history_.size(); ++i) {
      if (chosen[i] || history_[i].begin > first_end) continue;
      for (const State& next : after(state, history_[i])) {
        if (search(Chosen(chosen).set(i), next)) return true;
      }
    }
    return false;
  }

  // States after the operation; none if it cannot have returned its result here.
  static std::vector<State> after(const State& state, const Operation& operation) {
    const bool unknown = operation.end == Operation::never;
    const auto same_version = [&](std::uint64_t version) { return state.version == 0 || state.version == version; };
    switch (operation.kind) {
      case Operation::Kind::get:
        if (operation.done != state.present) return {};
        if (!state.present) return {state};
        if (operation.value != state.value || !same_version(operation.version)) return {};
        return {State{true, state.value, operation.version}};
      case Operation::Kind::set: return {State{true, operation.value, unknown ? 0 : operation.version}};
      case Operation::Kind::remove:
        if (!unknown && operation.done != state.present) return {};
        return {State{}};
      case Operation::Kind::clear:  // A crash: whatever there was, the key does not exist after it.
        return {State{}};
      case Operation::Kind::compare_and_set: {
        const bool possible =
            state.present ? operation.expected != 0 && same_version(operation.expected) : operation.expected == 0;
        const bool impossible =
            state.present ? operation.expected == 0 || state.version != operation.expected : operation.expected != 0;
        std::vector<State> states;
        if (possible && (unknown || operation.done)) {
          states.push_back({true, operation.value, unknown ? 0 : operation.version});
        }
        if (impossible && (unknown || !operation.done)) states.push_back(state);
        return states;
      }
      case Operation::Kind::increment: {
        const std::int64_t sum = (state.present ? std::stoll(state.value) : 0) + 1;
        if (!unknown && sum != operation.number) return {};
        return {State{true, std::to_string(sum), 0}};
      }
    }
    return {};
  }

  const std::vector<Operation>& history_;
  Chosen all_known_;
  std::unordered_set<std::string> visited_;
};

}  // namespace hawser::kv
