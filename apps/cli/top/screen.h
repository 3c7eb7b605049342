#pragma once

#include <string>
#include <vector>

#include "cli/top/sample.h"

namespace hawser::cli {

// The terminal of the standard output, switched to a screen of its own until this object ends.
class Screen {
 public:
  // True if the standard output is a terminal that can be drawn on.
  static bool available();

  Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen();

  // The present size of the terminal.
  static TopSize size();
  // Shows the lines, which fit, in place of the ones before.
  void draw(const std::vector<std::string>& lines);
};

}  // namespace hawser::cli
