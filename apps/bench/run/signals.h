#pragma once

namespace hawser::bench {

// Blocks SIGINT, SIGTERM and SIGHUP, so that the program reads them from a descriptor.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  // Readable when a signal has arrived.
  int descriptor() const noexcept { return descriptor_; }
  // Returns the signal that has arrived, or 0.
  int take() const noexcept;

 private:
  int descriptor_;
};

}  // namespace hawser::bench
