#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "cli/call/call_pacer.h"
#include "cli/call/latency.h"
#include "cli/call/outcome.h"
#include "cli/call/peer.h"
#include "cli/call/raw_call.h"
#include "cli/call/server_name.h"
#include "cli/command.h"
#include "cli/record/replay_stream.h"
#include "hawser/crc32c.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/sync.h"
#include "observe/record_format.h"

namespace hawser::cli {
namespace {

using observe::RecordedCall;

struct ReplayOptions {
  PeerOptions peer;
  double timeout_s = 10;
  std::string file;
  double speed = 1;
  unsigned connections = 1;
  unsigned in_flight_max = 1000;
  bool compare = false;
  bool json = false;
};

// The calls of a file, by their time. They refer to `bytes`.
struct RecordingFile {
  std::string bytes = {};
  std::vector<RecordedCall> calls = {};
};

// Appends the next bytes of the file, at most `bytes`. The number of bytes that were there.
std::size_t append_from(std::ifstream& file, std::string& to, std::size_t bytes) {
  const std::size_t before = to.size();
  to.resize(before + bytes);
  file.read(to.data() + before, static_cast<std::streamsize>(bytes));
  const auto found = static_cast<std::size_t>(file.gcount());
  to.resize(before + found);
  return found;
}

// Reads record by record, so that a file without an end that is not a recording is refused before memory is full.
Result<RecordingFile> read_recording(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::invalid_argument, "the file " + path + " can't be read");
  const auto named = [&](Error error) {
    error.code = ErrorCode::invalid_argument;
    error.text = path + ": " + error.text;
    return fail(std::move(error));
  };
  RecordingFile all;
  append_from(file, all.bytes, observe::recording_header_bytes);
  observe::RecordReader beginning(as_bytes(all.bytes));
  if (Result<void> begun = beginning.header(); !begun) return named(std::move(begun.error()));
  const bool streams = beginning.streams();
  for (;;) {
    const std::size_t at = all.bytes.size();
    const std::size_t found = append_from(file, all.bytes, observe::record_frame_bytes);
    if (found == 0) break;
    const std::size_t size = observe::record_content_bytes(as_bytes(all.bytes).subspan(at));
    append_from(file, all.bytes, std::min(size, observe::record_bytes_max));
    observe::RecordReader record(as_bytes(all.bytes).subspan(at), at, streams);
    if (auto call = record.next(); !call) return named(std::move(call.error()));
  }
  // The bytes do not move any more.
  observe::RecordReader reader(as_bytes(all.bytes));
  if (Result<void> begun = reader.header(); !begun) return named(std::move(begun.error()));
  for (;;) {
    auto call = reader.next();
    if (!call) return named(std::move(call.error()));
    if (!*call) break;
    all.calls.push_back(**call);
  }
  std::ranges::sort(all.calls, {}, [](const RecordedCall& one) { return std::pair(one.at, one.method.data()); });
  return all;
}

// Sends the calls at their times, and compares their outcomes.
class Replay {
 public:
  Replay(const ReplayOptions& given, const RecordingFile& file, const std::map<std::string_view, Method>& methods,
         const std::vector<std::unique_ptr<CallPeer>>& peers)
      : given_(given), file_(file), methods_(methods), peers_(peers) {}

  Task<void> run() {
    const Time begin = loop_.now();
    const Duration first = file_.calls.front().at;
    Scope calls;
    for (std::size_t i = 0; i < file_.calls.size(); ++i) {
      const auto since = std::chrono::duration<double>(file_.calls[i].at - first) / given_.speed;
      const Time at = begin + std::chrono::duration_cast<Duration>(since);
      Permit permit = co_await pacer_.admit(at);
      calls.spawn(one(at, i, std::move(permit)));
    }
    co_await calls.join();
    seconds_ = std::chrono::duration<double>(loop_.now() - begin).count();
  }

  bool same() const noexcept { return statuses_.empty() && different_ == 0; }

  std::string text() const {
    std::string out = fmt::format("{} in {:.2f} s\n", count_text(file_.calls.size(), "call"), seconds_);
    for (const auto& [change, count] : statuses_) out += fmt::format("{} were {}\n", count, change);
    if (given_.compare)
      out += fmt::format("{} replies of {} that were compared are different\n", different_, compared_);
    if (streams_ != 0) out += fmt::format("{} of the calls have streams\n", streams_);
    if (truncated_ != 0) {
      out += fmt::format(
          "{} of these were recorded in part: their items were sent and compared up to there, and their outcomes are "
          "not known\n",
          truncated_);
    }
    if (ended_early_ != 0) {
      out += fmt::format("{} of these ended before all recorded items of the caller were sent\n", ended_early_);
    }
    if (same())
      out +=
          given_.compare ? "all outcomes and replies are the recorded ones\n" : "all outcomes are the recorded ones\n";
    return out + pacer_.late_line() + latencies_.text();
  }
  std::string json() const {
    std::string changes;
    for (const auto& [change, count] : statuses_)
      changes += fmt::format("{}\"{}\":{}", changes.empty() ? "" : ",", change, count);
    return fmt::format(
        "{{\"sent\":{},\"seconds\":{:.6f},\"changed_outcomes\":{{{}}},\"compared\":{},\"different\":{},\"sent_late\":{}"
        ","
        "\"streams\":{},\"truncated\":{},\"ended_early\":{},\"latency_us\":{}}}",
        file_.calls.size(), seconds_, changes, compared_, different_, pacer_.late(), streams_, truncated_, ended_early_,
        latencies_.json());
  }

 private:
  Task<void> one(Time since, std::size_t number, Permit) {
    const RecordedCall& recorded = file_.calls[number];
    CallOptions options = given_.peer.call_options();
    options.attachment = recorded.attachment;
    // The replayed calls are not a part of the traces of the recorded ones. What the user gives replaces what was
    // recorded.
    for (auto& [key, value] : MetadataView(recorded.metadata).copy()) {
      const bool given = std::ranges::any_of(given_.peer.metadata, [&](const auto& one) { return one.first == key; });
      if (given || key == "traceparent" || key == "tracestate") continue;
      options.metadata.emplace_back(std::move(key), std::move(value));
    }
    // The caller of a stream takes its time.
    if (recorded.streams && options.timeout) *options.timeout += stretched(recorded.duration);
    const Method& method = methods_.at(recorded.method);
    RawCall call(peers_[number % peers_.size()]->link(), method, std::string(as_text(recorded.body)),
                 std::string(as_text(recorded.payload)), std::move(options));
    call.send();
    if (!recorded.streams) {
      const Result<RawCall::Answer> answer = co_await call.answer();
      if (answer) latencies_.record(loop_.now() - since);
      judge(recorded, answer, true);
      co_return;
    }
    ++streams_;
    if (recorded.truncated) ++truncated_;
    // The items keep their distances to the call also if it was sent late.
    const ReplayedStream stream =
        co_await replay_stream(call, method, recorded, given_.speed, std::max(since, loop_.now()));
    if (!stream.all_sent) ++ended_early_;
    if (!recorded.truncated && stream.answer) {
      judge(recorded, *stream.answer, stream.same_items);
    } else if (given_.compare) {
      ++compared_;
      if (!stream.same_items) ++different_;
    }
  }
  Duration stretched(Duration recorded) const {
    const Duration longest = std::chrono::hours(24);
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(recorded, longest)) /
                                                given_.speed);
  }
  void judge(const RecordedCall& recorded, const Result<RawCall::Answer>& answer, bool same_items) {
    const ErrorCode outcome = answer ? ErrorCode::ok : answer.error().code;
    if (outcome != recorded.outcome) {
      ++statuses_[fmt::format("{}, now {}", name_of(recorded.outcome), name_of(outcome))];
    } else if (given_.compare && !same_items) {
      ++compared_;
      ++different_;
    } else if (given_.compare && answer && recorded.reply_checksum) {
      ++compared_;
      std::uint32_t checksum = 0;
      for (const std::string* part : {&answer->body, &answer->payload, &answer->attachment}) {
        checksum = crc32c(checksum, as_bytes(*part));
      }
      const std::size_t bytes = answer->body.size() + answer->payload.size() + answer->attachment.size();
      if (bytes != recorded.reply_bytes || checksum != *recorded.reply_checksum) ++different_;
    }
  }
  static std::string name_of(ErrorCode code) { return code == ErrorCode::ok ? "ok" : std::string(to_string(code)); }

  const ReplayOptions& given_;
  const RecordingFile& file_;
  const std::map<std::string_view, Method>& methods_;
  const std::vector<std::unique_ptr<CallPeer>>& peers_;
  Loop& loop_ = *Loop::current();
  double seconds_ = 0;
  CallPacer pacer_{given_.in_flight_max};
  std::uint64_t compared_ = 0;
  std::uint64_t different_ = 0;
  std::uint64_t streams_ = 0;
  std::uint64_t truncated_ = 0;
  std::uint64_t ended_early_ = 0;
  std::map<std::string, std::uint64_t> statuses_;
  Latencies latencies_;
};

Task<int> replay(ReplayOptions given, Output output) {
  const Result<RecordingFile> file = read_recording(given.file);
  if (!file) co_return output.error(file.error());
  if (file->calls.empty()) {
    co_return output.error(Error::of_call(
        ErrorCode::invalid_argument,
        given.file + " has no calls: record again while the server is called, or with a larger --ratio"));
  }
  // The clock of this loop stood still meanwhile. The time of a large file does not count in the connect timeout.
  co_await Loop::current()->sleep(Duration::zero());
  std::vector<std::unique_ptr<CallPeer>> peers;
  for (unsigned i = 0; i < given.connections; ++i) {
    Result<std::unique_ptr<CallPeer>> peer = co_await connect_peer(given.peer, i);  // Spread over the endpoints.
    if (!peer) co_return output.error(peer.error());
    peers.push_back(std::move(*peer));
  }
  std::map<std::string_view, Method> methods;
  for (const RecordedCall& call : file->calls) {
    if (methods.contains(call.method)) continue;
    Result<Method> method = co_await peers[0]->find(std::string(call.method));
    if (!method) co_return output.unknown_method(method.error());
    methods.emplace(call.method, std::move(*method));
  }
  Replay run(given, *file, methods, peers);
  co_await run.run();
  output.line(output.json ? run.json() : run.text());
  co_return run.same() ? succeeded : refused;
}

}  // namespace

Run add_replay(CLI::App& command) {
  auto options = std::make_shared<ReplayOptions>();
  command.add_option("file", options->file, "Recording of hawser record")->required();
  add_peer_options(command, options->peer, options->timeout_s);
  command.add_option("--speed", options->speed, "How many times faster than recorded the calls are sent")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 100.0));
  command.add_option("--connections", options->connections, "Number of connections")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1000U));
  command.add_option("--in-flight-max", options->in_flight_max, "Calls in flight; further calls wait")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1'000'000U));
  command.add_flag("--compare", options->compare,
                   "Compare the bytes of the replies and of the items of streams, by size and checksum");
  command.add_flag("--json", options->json, "Print JSON");
  command.footer(
      std::string("Calls and the items of their streams are sent at their recorded times, whether or not earlier "
                  "calls have been answered. Status "
                  "1 if an outcome or a compared reply differs, 2 for a damaged file. ") +
      statuses);
  return [options] {
    options->peer.timeout = duration_of(options->timeout_s);
    return sync_wait(replay(*options, {.command = "replay", .json = options->json}));
  };
}

}  // namespace hawser::cli
