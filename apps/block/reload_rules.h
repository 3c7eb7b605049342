#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "block/volume_rules.h"

namespace hawser::block {

// Reads the rules of a program again and says on standard error what happened.
inline void reload_rules(VolumeRules& rules, const std::string& file) {
  const Result<void> done = rules.reload(file);
  fmt::print(stderr, "hawser-block: {}\n",
             done ? "the rules of " + file + " are in use" : done.error().text + ": the rules did not change");
}

}  // namespace hawser::block
