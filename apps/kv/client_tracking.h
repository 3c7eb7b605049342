#pragma once

#include <cstdint>

#include "kv/commands.h"

namespace hawser::kv {

// CLIENT TRACKING of one connection: whether the keys that its next command reads are tracked. The default mode of
// Redis, with OPTIN and OPTOUT, for clients of RESP3.
class ClientTracking {
 public:
  bool on() const noexcept { return mode_ != Mode::off; }
  bool takes_next() const noexcept {
    return mode_ == Mode::all || (mode_ == Mode::opt_in && caching_) || (mode_ == Mode::opt_out && !caching_);
  }
  // A command has been executed that CLIENT CACHING was about.
  void command_done() noexcept { caching_ = false; }
  void end() noexcept { *this = {}; }

  // CLIENT TRACKING, CACHING and TRACKINGINFO.
  void set(Arguments arguments, protocol::resp::ReplyWriter& out);
  void set_caching(Arguments arguments, protocol::resp::ReplyWriter& out);
  void describe(protocol::resp::ReplyWriter& out) const;

 private:
  enum class Mode : std::uint8_t { off, all, opt_in, opt_out };

  Mode mode_ = Mode::off;
  bool caching_ = false;  // CLIENT CACHING YES in mode opt_in, and CLIENT CACHING NO in mode opt_out.
};

}  // namespace hawser::kv
