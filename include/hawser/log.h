#pragma once

#include <concepts>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace hawser {

enum class LogLevel : unsigned char { debug, info, warning, error };

// Receives the log of a Server, Client or Loop. It holds any callable with the parameters (LogLevel, std::string_view
// component, std::string_view text). The callable runs on the thread that logs, so several threads may call it at once
// if several loops share it. It must not block for long. `component` is a short name such as "exec" or "rpc".
class LogSink {
 public:
  // Discards everything.
  LogSink() noexcept = default;
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, LogSink> &&
             std::invocable<F&, LogLevel, std::string_view, std::string_view>)
  LogSink(F&& write) : target_(std::make_shared<Callable<std::decay_t<F>>>(std::forward<F>(write))) {}

  explicit operator bool() const noexcept { return target_ != nullptr; }
  void operator()(LogLevel level, std::string_view component, std::string_view text) const {
    if (target_) target_->write(level, component, text);
  }

 private:
  struct Target {
    virtual ~Target() = default;
    virtual void write(LogLevel level, std::string_view component, std::string_view text) = 0;
  };
  template <class F>
  struct Callable final : Target {
    template <class From>
    explicit Callable(From&& from) : function(std::forward<From>(from)) {}
    void write(LogLevel level, std::string_view component, std::string_view text) override {
      function(level, component, text);
    }
    F function;
  };
  std::shared_ptr<Target> target_;
};

// The default sink. Writes messages of level `least` and above to stderr, one line each. Texts may quote a peer, so
// control characters are written as ?. Other sinks get them unchanged. It neither waits for the reader of stderr nor
// raises SIGPIPE: lines that stderr does not take are lost, and a later line has their number.
LogSink stderr_log(LogLevel least = LogLevel::warning);
// A sink that discards everything.
LogSink no_log();

std::string_view to_string(LogLevel level) noexcept;

}  // namespace hawser
