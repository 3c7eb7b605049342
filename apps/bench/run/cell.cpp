#include "bench/run/cell.h"

namespace hawser::bench {

std::string_view to_string(Mode mode) noexcept {
  switch (mode) {
    case Mode::pipeline: return "pipeline";
    case Mode::connections: return "connections";
    case Mode::threads: return "threads";
  }
  return "?";
}

std::optional<Mode> parse_mode(std::string_view text) noexcept {
  for (const Mode mode : {Mode::pipeline, Mode::connections, Mode::threads}) {
    if (text == to_string(mode)) return mode;
  }
  return std::nullopt;
}

std::string_view to_string(Wait wait) noexcept {
  switch (wait) {
    case Wait::spin: return "spin";
    case Wait::busy_poll: return "busy_poll";
    case Wait::event: return "event";
  }
  return "?";
}

std::optional<Wait> parse_wait(std::string_view text) noexcept {
  for (const Wait wait : {Wait::spin, Wait::busy_poll, Wait::event}) {
    if (text == to_string(wait)) return wait;
  }
  return std::nullopt;
}

}  // namespace hawser::bench
