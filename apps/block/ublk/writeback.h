#pragma once

#include "hawser/error.h"

namespace hawser::block::ublk {

// For a process that serves what the kernel writes to get free memory: its allocations do not wait for such writes
// (PR_SET_IO_FLUSHER), and its memory is not written to a swap area (mlockall), which may be on the device. Pages are
// locked when they are used. For this thread, and those that it starts afterwards. Fails without CAP_SYS_RESOURCE: then
// the device may stop for ever when memory is short.
Result<void> prepare_for_writeback();

}  // namespace hawser::block::ublk
