#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "base/decimal_text.h"
#include "base/descriptor.h"
#include "base/kernel_random.h"
#include "base/try.h"
#include "cli/call/outcome.h"
#include "cli/command.h"
#include "cli/top/signals.h"
#include "hawser/http_client.h"
#include "hawser/loop.h"
#include "observe/record_format.h"

namespace hawser::cli {
namespace {

struct RecordOptions {
  std::string address;
  std::string file;
  double ratio = 1;
  std::uint64_t requests_max = 1'000'000;
  std::uint64_t bytes_max = std::uint64_t{256} << 20;
  double seconds = 10;
  double timeout_s = 5;
  bool json = false;
  bool streams = true;
  std::string token = {};  // The server may demand it.
  std::string token_file = {};
  std::shared_ptr<transport::ClientSecurity> security = {};
};

// A new file that only its owner may read: requests may be confidential.
class NewFile {
 public:
  Result<void> open(const std::string& path) {
    file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file_.valid()) return {};
    const std::string why = errno == EEXIST ? "it exists: remove it, or give another name" : std::strerror(errno);
    return fail(ErrorCode::invalid_argument, "the file " + path + " can't be written: " + why);
  }
  // Writes all bytes, or none: a part of a record would make the whole file a damaged one.
  Result<void> write(std::string_view bytes) {
    const std::uint64_t before = size_;
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        const std::string why = std::strerror(errno);
        const bool whole = ::ftruncate(file_.get(), static_cast<off_t>(before)) == 0;
        size_ = before;
        return fail(ErrorCode::internal,
                    fmt::format("writing the file: {}; {}", why,
                                whole ? "it has the requests that were recorded before" : "it ends within a record"));
      }
      bytes.remove_prefix(static_cast<std::size_t>(written));
      size_ += static_cast<std::uint64_t>(written);
    }
    return {};
  }
  std::uint64_t size() const noexcept { return size_; }

 private:
  Descriptor file_;
  std::uint64_t size_ = 0;
};

std::uint64_t count_in(const HttpClientResponse& response, std::string_view name) {
  std::uint64_t count = 0;
  const std::string_view text = response.header(name).value_or("");
  std::from_chars(text.data(), text.data() + text.size(), count);
  return count;
}

// Used on the loop's thread.
class Recording {
 public:
  Recording(Loop& loop, const RecordOptions& options)
      : loop_(loop),
        options_(options),
        client_(loop,
                {.body_bytes_max = observe::record_bytes_max + (std::size_t{1} << 20), .security = options.security}) {}

  // The user wants to end. A request in flight may bring records, but must not hold the user for long. Again: at once.
  void end() {
    if (ended_.stop_requested()) return void(abandoned_.request_stop());
    ended_.request_stop();
    giving_up_.start(loop_, loop_.after(end_wait_max));
  }

  Task<int> run() {
    const Output output{.command = "record", .json = options_.json};
    // The server answers before the file is made: it may refuse.
    Result<HttpClientResponse> response = co_await fetch(false);
    if (const std::optional<Error> error = refusal(response)) co_return output.error(*error);
    const Result<void> kept = co_await record(std::move(*response));
    if (!ended_there_ && !abandoned_.stop_requested()) {
      static_cast<void>(co_await fetch(true));
    }
    if (!kept) co_return output.error(kept.error());
    output.line(summary());
    co_return succeeded;
  }

 private:
  // Asks for the records since the last time. `end`: the recording ends.
  Task<Result<HttpClientResponse>> fetch(bool end) {
    HttpClientRequest request;
    request.method = "POST";
    request.url = fmt::format("{}://localhost/record?recording={}&ratio={}&streams={}&end={}",
                              programs::scheme_of(options_.security), name_, options_.ratio, options_.streams ? 1 : 0,
                              end ? 1 : 0);
    request.address = options_.address;
    request.timeout = duration_of(options_.timeout_s);
    if (!options_.token.empty()) request.headers.emplace_back("Hawser-Token", options_.token);
    request.token = abandoned_.get_token();
    return client_.send(std::move(request));
  }

  Task<Result<void>> record(HttpClientResponse response) {
    CO_TRY(file_.open(options_.file));
    CO_TRY(file_.write(observe::recording_header()));
    const Time until = loop_.after(duration_of(options_.seconds));
    for (;;) {
      dropped_ = count_in(response, "hawser-dropped");
      skipped_ = count_in(response, "hawser-skipped");
      CO_TRY(const bool more, keep(response.body));
      if (!more || ended_there_) co_return Result<void>();
      static_cast<void>(co_await loop_.sleep(std::chrono::milliseconds(100), ended_.get_token()));
      const bool last = ended_.stop_requested() || loop_.now() >= until;
      Result<HttpClientResponse> next = co_await fetch(last);
      if (const std::optional<Error> error = refusal(next)) co_return fail(*error);
      ended_there_ = last;
      response = std::move(*next);
    }
  }

  std::optional<Error> refusal(const Result<HttpClientResponse>& response) const {
    if (!response) {
      Error error = response.error();
      if (abandoned_.stop_requested()) {
        error.code = ErrorCode::deadline_exceeded;
        error.text = "no answer came before this command was ended; the file has the requests that were received";
      }
      // The request changes nothing but the time at which the recording ends.
      if (error.code == ErrorCode::outcome_unknown) error.code = ErrorCode::unavailable;
      error.text = options_.address + " does not answer /record: " + error.text;
      return error;
    }
    if (response->status == 200) return std::nullopt;
    std::string why = response->body.substr(0, std::min<std::size_t>(response->body.find('\n'), 200));
    if (response->status == 404) why = "it is not a Hawser server, or it has no PagesOptions::recorder";
    return Error{
        .code = response->status == 403   ? ErrorCode::permission_denied
                : response->status == 409 ? ErrorCode::overloaded  // Another recording runs.
                                          : ErrorCode::protocol_error,
        .initiator = Initiator::peer,
        .text = fmt::format("{} answers /record with HTTP status {}: {}", options_.address, response->status, why)};
  }

  // Writes the records within the limits. False if one is reached.
  Result<bool> keep(std::string_view records) {
    observe::RecordReader reader(as_bytes(records));
    for (;;) {
      const auto record = reader.next();
      if (!record) {
        return fail(ErrorCode::protocol_error,
                    options_.address + " sends something else than records: " + record.error().text);
      }
      if (!*record) return recorded_ < options_.requests_max;
      const std::string_view bytes = as_text(reader.record());
      if (recorded_ >= options_.requests_max || file_.size() + bytes.size() > options_.bytes_max) return false;
      TRY(file_.write(bytes));
      ++recorded_;
      if ((*record)->streams) ++streams_;
      if ((*record)->truncated) ++truncated_;
    }
  }

  std::string summary() const {
    if (options_.json) {
      return fmt::format(
          "{{\"recorded\":{},\"bytes\":{},\"dropped\":{},\"skipped\":{},\"streams\":{},\"truncated\":{}}}", recorded_,
          file_.size(), dropped_, skipped_, streams_, truncated_);
    }
    std::string text = count_text(recorded_, "request") + ", " + count_text(file_.size(), "byte");
    if (dropped_ != 0)
      text += fmt::format("; {} were not recorded because the server's queue was full: give --ratio", dropped_);
    if (skipped_ != 0)
      text += fmt::format("; {} were not recorded because they {}are too large", skipped_,
                          options_.streams ? "" : "have streams or ");
    if (truncated_ != 0) {
      text +=
          fmt::format("; {} of {} streams were recorded in part: RecorderOptions bounds them", truncated_, streams_);
    }
    return text;
  }

  // Time for a request in flight after Ctrl-C.
  static constexpr Duration end_wait_max = std::chrono::seconds(1);
  void give_up() noexcept { abandoned_.request_stop(); }

  Loop& loop_;
  const RecordOptions& options_;
  HttpClient client_;
  const std::string name_ = fmt::format("{:016x}", kernel_random());
  std::stop_source ended_;
  std::stop_source abandoned_;  // Requests in flight end.
  MemberTimer<&Recording::give_up> giving_up_{*this};
  bool ended_there_ = false;  // The server knows that the recording has ended.
  NewFile file_;
  std::uint64_t recorded_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t streams_ = 0;
  std::uint64_t truncated_ = 0;  // Streams that were recorded in part.
};

// The token of the server: the first line of the file, or the variable HAWSER_TOKEN, which other users cannot read.
Result<std::string> token_of(const RecordOptions& options) {
  std::string token;
  if (options.token_file.empty()) {
    const char* const variable = std::getenv("HAWSER_TOKEN");
    return variable == nullptr ? token : std::string(variable);
  }
  std::ifstream file(options.token_file);
  if (!std::getline(file, token)) {
    return fail(ErrorCode::invalid_argument, "--token-file " + options.token_file + " cannot be read, or is empty");
  }
  return token;
}

int run_record(RecordOptions options) {
  Result<std::string> token = token_of(options);
  if (!token) {
    return Output{.command = "record", .json = options.json}.error(token.error());
  }
  options.token = std::move(*token);
  Loop loop;
  Recording recording(loop, options);
  const CommandSignals signals([&](int number) {
    if (number != SIGWINCH) loop.post([&recording] { recording.end(); });
  });
  return loop.run(recording.run());
}

}  // namespace

Run add_record(CLI::App& command) {
  auto options = std::make_shared<RecordOptions>();
  command.add_option("address", options->address, "Server with a recorder: HOST:PORT, unix:/path or unix:@name")
      ->required();
  command.add_option("file", options->file, "File to write; it must not exist")->required();
  command.add_option("--ratio", options->ratio, "Part of the calls to record")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--requests", options->requests_max, "End after that many requests")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  command.add_option("--bytes", options->bytes_max, "End before the file is larger")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1024}, std::uint64_t{1} << 40));
  command.add_option("--seconds", options->seconds, "End after that time")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86'400.0));
  command.add_option("--timeout", options->timeout_s, "Seconds for each request of this command")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  command.add_option("--token-file", options->token_file,
                     "File of the token of the server (PagesOptions::change_token_file); without it, the environment "
                     "variable HAWSER_TOKEN is used");
  command.add_flag("!--no-streams", options->streams, "Do not record calls with streams");
  programs::add_tls_client_options(command, options->address, options->security);
  command.add_flag("--json", options->json, "Print JSON");
  command.footer(
      "The server must have PagesOptions::recorder; hawser demo serve --recorder has. Ctrl-C ends the recording with "
      "what "
      "is there. Exit status: 0 if the file is complete, 1 if the server refuses or has no recorder, 2 for wrong "
      "options or "
      "a file that cannot be written, 3 if there is no connection, 4 if the time was over.");
  return [options] { return run_record(*options); };
}

}  // namespace hawser::cli
