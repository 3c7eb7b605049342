#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "bench/load/handlers.h"
#include "bench/run/cell.h"

// Events that a measuring process reports to the process that started it, as lines of JSON on a pipe.
namespace hawser::bench {

struct Listening {
  std::string address;  // Address at which the server listens.
};
struct Connected {
  ServerFacts server;
  std::string client_poller;
  std::string transport = {};  // Transport that carries the calls; empty if it is not known.
};
struct CellBegun {
  std::size_t index = 0;  // Index among the cells that this process measures.
};
struct Failed {
  std::string text;
};
using Event = std::variant<Listening, Connected, CellBegun, CellResult, Failed>;

// Returns the event as one line, without the line's end.
std::string encode_event(const Event& event);
// Returns nothing if `line` is not an event.
std::optional<Event> decode_event(std::string_view line);

// Writes events to a descriptor, which it does not own.
class EventWriter {
 public:
  explicit EventWriter(int descriptor) noexcept : descriptor_(descriptor) {}
  // Returns whether the whole event was written: false when the reader has closed the pipe.
  bool write(const Event& event) const;

 private:
  int descriptor_;
};

}  // namespace hawser::bench
