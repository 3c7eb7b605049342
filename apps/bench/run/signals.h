#pragma once

namespace hawser::bench {

// Takes SIGINT, SIGTERM and SIGHUP from this process, to be read instead of interrupting it.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  // Readable when one has come.
  int descriptor() const noexcept { return descriptor_; }
  // The signal that has come, or 0.
  int take() const noexcept;

 private:
  int descriptor_;
};

}  // namespace hawser::bench
