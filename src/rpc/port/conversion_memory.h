#pragma once

#include <cstddef>
#include <new>

#include "exec/condition.h"
#include "hawser/time.h"

namespace hawser::rpc {

// Lets the conversions of bodies on one loop wait for the memory of each other. A body whose length is not known, such
// as one of zlib, is charged the largest length that it can have: a few of them use up the part of a peer, and are
// converted within milliseconds. Loop's thread only.
class ConversionMemory {
 public:
  explicit ConversionMemory(Loop& loop) noexcept : loop_(loop), changed_(loop) {}

  // Exists while a conversion is charged and awaited. Its end wakes those that wait.
  class Holder {
   public:
    explicit Holder(ConversionMemory& of) noexcept : of_(of) { ++of_.holders_; }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ~Holder() {
      --of_.holders_;
      of_.last_end_ = of_.loop_.now();
      try {
        of_.changed_.notify_all();
      } catch (const std::bad_alloc&) {
        // One waiter is not resumed any more: it ends with its session. The next end resumes the rest.
      }
    }

   private:
    ConversionMemory& of_;
  };

  // False: no conversion has memory, so that nothing would end a wait.
  bool held() const noexcept { return holders_ != 0; }
  // The time at which a conversion last ended.
  Time last_end() const noexcept { return last_end_; }
  // Awaits the end of a conversion. Check again then.
  exec::Condition::Waiter ended() noexcept { return changed_.wait(); }

 private:
  Loop& loop_;
  exec::Condition changed_;
  std::size_t holders_ = 0;
  Time last_end_{};
};

}  // namespace hawser::rpc
