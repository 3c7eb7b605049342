#pragma once

#include <cstdint>
#include <string>

#include "hawser/error.h"

namespace hawser::block {

// Errors of the store. `application_code` is the errno value that a block device would return: EIO for damaged data
// and failed devices, ENOSPC, EROFS, EINVAL, ENOENT, EEXIST, EBUSY, ENODEV for a volume that has been closed.
std::unexpected<Error> store_fail(int number, std::string text);

// `action`, such as "write the data of volume a", failed with the errno value `number`.
std::unexpected<Error> system_fail(int number, const std::string& action);

}  // namespace hawser::block
