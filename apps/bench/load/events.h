#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "bench/load/handlers.h"
#include "bench/run/cell.h"

// What the measuring process tells the one that started it, as lines of JSON on a pipe.
namespace hawser::bench {

struct Listening {
  std::string address;  // Of the server.
};
struct Connected {
  ServerFacts server;
  std::string client_poller;
  std::string transport = {};  // That carries the calls; where it is not known, empty.
};
struct CellBegun {
  std::size_t index = 0;  // Among the cells that this process was given.
};
struct Failed {
  std::string text;
};
using Event = std::variant<Listening, Connected, CellBegun, CellResult, Failed>;

// One line, without its end.
std::string encode_event(const Event& event);
// Empty if `line` is none.
std::optional<Event> decode_event(std::string_view line);

// Writes events to a descriptor, which it does not own.
class EventWriter {
 public:
  explicit EventWriter(int descriptor) noexcept : descriptor_(descriptor) {}
  // Whether all of it was written: false when nobody reads any more.
  bool write(const Event& event) const;

 private:
  int descriptor_;
};

}  // namespace hawser::bench
