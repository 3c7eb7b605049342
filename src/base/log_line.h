#pragma once

#include <exception>
#include <string_view>
#include <utility>

#include "hawser/log.h"

namespace hawser {

// Logs the text that `make_text` returns, also where an exception would end the process: a line for which there is no
// memory is lost, and the sink counts it.
template <class MakeText>
void log_line(const LogSink& sink, LogLevel level, std::string_view component, MakeText&& make_text) noexcept {
  if (!sink) return;
  try {
    sink(level, component, std::forward<MakeText>(make_text)());
  } catch (const std::exception&) {
    sink.lose_line();
  }
}

}  // namespace hawser
