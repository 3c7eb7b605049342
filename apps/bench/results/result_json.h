#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "bench/run/cell.h"

namespace hawser::bench {

// Returns an element of "cells" in the file that --json writes.
nlohmann::json result_to_json(const CellResult& result);
// Returns nothing if a field is missing or has the wrong type.
std::optional<CellResult> result_from_json(const nlohmann::json& object);

}  // namespace hawser::bench
