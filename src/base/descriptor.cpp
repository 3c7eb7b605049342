#include "base/descriptor.h"

#include <unistd.h>

namespace hawser {

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace hawser
