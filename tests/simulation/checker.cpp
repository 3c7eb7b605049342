#include "tests/simulation/checker.h"

#include <algorithm>
#include <cstring>

#include "hawser/stream.h"

namespace hawser::simulation {
namespace {

constexpr std::byte retired_byte{0xee};
constexpr std::size_t violations_max = 20;

std::uint64_t word(std::uint64_t id, std::uint64_t index) noexcept {
  std::uint64_t z = (id * 0x9e3779b97f4a7c15U) ^ ((index + 1) * 0xbf58476d1ce4e5b9U);
  z ^= z >> 29;
  return z * 0x94d049bb133111ebU;
}

}  // namespace

std::string content(std::uint64_t id, std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t value = word(id, at);
    std::memcpy(bytes.data() + at, &value, std::min(sizeof value, size - at));
  }
  return bytes;
}

bool is_content(std::uint64_t id, std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t value = word(id, at);
    if (std::memcmp(bytes.data() + at, &value, std::min(sizeof value, bytes.size() - at)) != 0) return false;
  }
  return true;
}

std::uint64_t Checker::begin(const char* kind) {
  calls_.push_back({kind});
  ++counts_.begun;
  return calls_.size();
}

void Checker::may_repeat(std::uint64_t id) { calls_[id - 1].may_repeat = true; }

void Checker::executed(std::uint64_t id) {
  ++counts_.executed;
  if (id == 0 || id > calls_.size()) return violate("a call that nobody made was executed", id);
  Call& call = calls_[id - 1];
  if (++call.executions == 2 && !call.may_repeat) violate("a call was executed twice", id);
  if (call.state == State::failed_unexecuted) violate("a call was executed after it ended as not executed", id);
}

Checker::Call* Checker::ending(std::uint64_t id, const char* how) {
  if (id == 0 || id > calls_.size()) {
    violate(std::string("a call that nobody made ") + how, id);
    return nullptr;
  }
  Call& call = calls_[id - 1];
  if (call.state == State::open) return &call;
  violate(std::string("a call that had ended ") + how, id);
  return nullptr;
}

void Checker::replied(std::uint64_t id) {
  Call* const call = ending(id, "got a reply");
  if (call == nullptr) return;
  ++counts_.replied;
  call->state = State::replied;
  if (call->executions == 0) violate("a call was answered without being executed", id);
}

void Checker::failed(std::uint64_t id, const Error& error, bool connection_lost) {
  Call* const call = ending(id, "failed");
  if (call == nullptr) return;
  ++counts_.failed;
  ++counts_.errors[error.code];
  call->state = error.not_executed() ? State::failed_unexecuted : State::failed;
  if (error.not_executed() && call->executions != 0) {
    violate("a call was executed and then failed as not executed: " + error.describe(), id);
  }
  if (error.code == ErrorCode::outcome_unknown && !connection_lost) {
    violate("outcome_unknown although the connection lives: " + error.describe(), id);
  }
  if (error.code == ErrorCode::protocol_error || error.code == ErrorCode::signature_mismatch ||
      error.code == ErrorCode::ok) {
    violate("honest peers disagree: " + error.describe(), id);
  }
}

void Checker::dropped(std::uint64_t id) {
  Call* const call = ending(id, "was dropped");
  if (call == nullptr) return;
  ++counts_.dropped;
  call->state = State::dropped;
}

void Checker::item_written(std::uint64_t stream, std::size_t bytes, std::size_t window) {
  Stream& one = streams_[stream];
  const std::size_t cost = bytes + detail::StreamCore::item_overhead_bytes;
  one.written += cost;
  if (one.written > one.read + window + cost) violate("a stream holds more than its window and one item", stream >> 20);
}

void Checker::item_read(std::uint64_t stream, std::size_t bytes) {
  streams_[stream].read += bytes + detail::StreamCore::item_overhead_bytes;
}

void Checker::retire(std::vector<std::byte> memory) {
  std::fill(memory.begin(), memory.end(), retired_byte);
  retired_.push_back(std::move(memory));
}

void Checker::expect(bool holds, std::string_view text, std::uint64_t id) {
  if (!holds) violate(text, id);
}

void Checker::violate(std::string_view text, std::uint64_t id) {
  if (violations_.size() >= violations_max) return;
  std::string whose;
  if (id != 0 && id <= calls_.size()) whose = "call " + std::to_string(id) + " (" + calls_[id - 1].kind + "): ";
  violations_.push_back(whose + std::string(text));
}

void Checker::report_open() {
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].state == State::open) violate("a call never ended", i + 1);
  }
}

void Checker::finish() {
  report_open();
  for (const std::vector<std::byte>& memory : retired_) {
    if (std::any_of(memory.begin(), memory.end(), [](std::byte byte) { return byte != retired_byte; })) {
      violate("memory given to a call was written to after the call had ended", 0);
    }
  }
}

}  // namespace hawser::simulation
