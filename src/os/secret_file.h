#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "hawser/error.h"
#include "hawser/time.h"
#include "heap/secret_memory.h"

namespace hawser {

// Reads a file into secret memory, and leaves no copy. The error names the file and the reason: limit_exceeded if it
// has more than `bytes_max` bytes. If the path leads to a pipe, this waits for the end of its writer, until `stop` or
// for `pipe_time`.
Result<SecretVector<char>> read_secret_file(const std::string& path, std::size_t bytes_max, const std::stop_token& stop,
                                            Duration pipe_time);

// Makes or overwrites a file that only its owner may read. False, with errno, if that fails.
bool write_private_file(const std::string& path, std::string_view bytes) noexcept;

// Makes a file that only its owner may use, with that content. False if there is one of that name already. The error
// names the reason.
Result<bool> make_secret_file(const std::string& path, std::string_view content);

// True if the path leads to a file that others than its owner may use.
bool others_may_use(const std::string& path) noexcept;

// True for the effective user of this process, and for root.
bool is_own_user_or_root(std::uint32_t user) noexcept;

}  // namespace hawser
