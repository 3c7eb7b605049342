#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "bench/run/cell.h"

namespace hawser::bench {

// An element of "cells" in the file that --json writes.
nlohmann::json result_to_json(const CellResult& result);
// Empty if fields are missing or of another kind.
std::optional<CellResult> result_from_json(const nlohmann::json& object);

}  // namespace hawser::bench
