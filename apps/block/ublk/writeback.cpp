#include "block/ublk/writeback.h"

#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cerrno>

#include "block/store/store_error.h"

namespace hawser::block::ublk {

Result<void> prepare_for_writeback() {
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0) return system_fail(errno, "set PR_SET_IO_FLUSHER");
  // Memory of later may exceed a limit, and then could not be reserved.
  const ::rlimit no_limit{RLIM_INFINITY, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_MEMLOCK, &no_limit) != 0) return system_fail(errno, "raise the limit RLIMIT_MEMLOCK");
  // The program's code is read now, and pages of later are locked when they are used.
  if (::mlockall(MCL_CURRENT) != 0 || ::mlockall(MCL_FUTURE | MCL_ONFAULT) != 0) {
    return system_fail(errno, "lock the memory of the process (mlockall)");
  }
  return {};
}

}  // namespace hawser::block::ublk
