#pragma once

#include <atomic>
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
  // If the callable throws, for example for want of memory, the line is lost. The next line is preceded by one with the
  // number of lines that were lost.
  void operator()(LogLevel level, std::string_view component, std::string_view text) const noexcept {
    if (target_) target_->log(level, component, text);
  }
  // Counts a line for whose text there was no memory.
  void lose_line() const noexcept {
    if (target_) target_->lose(1);
  }

 private:
  struct Target {
    virtual ~Target() = default;
    virtual void write(LogLevel level, std::string_view component, std::string_view text) = 0;
    void log(LogLevel level, std::string_view component, std::string_view text) noexcept;
    void lose(unsigned lines) noexcept { lost.fetch_add(lines, std::memory_order_relaxed); }
    std::atomic<unsigned> lost{0};
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
