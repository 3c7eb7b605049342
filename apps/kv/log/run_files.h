#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>

#include "hawser/error.h"
#include "kv/log/log_format.h"

namespace hawser::kv {

// The file of each shard in the folder of a run that has all that was written. A crash leaves two files of a shard when
// it comes before the older one is removed, and somebody may have copied or renamed files: LogHeader::file says which
// one is the newest, and of copies of one file the longest one counts. Fails, and names two files, if it is not known
// which one counts. What each file has is not checked.
Result<std::map<std::uint64_t, std::filesystem::path>> find_run_files(const std::filesystem::path& run);

// The header of a file of the run. Nothing if none can be read.
std::optional<LogHeader> run_header(const std::filesystem::path& run);

}  // namespace hawser::kv
