#include "transport/shm/shm_path.h"

#include "transport/path_suite_testing.h"

namespace hawser::transport {
namespace {

std::vector<PathCase> shm_cases() {
  std::vector<PathCase> cases;
  const auto add = [&](const std::string& name, const ShmOptions& options) {
    const std::size_t region = options.slab_bytes / 256;
    std::vector<std::size_t> limits = {options.eager_bytes, options.ring_bytes / 4, options.ring_bytes,
                                       options.slab_bytes, region};
    if (options.direct_read_bytes_min != SIZE_MAX) limits.push_back(options.direct_read_bytes_min);
    for (PathCase& one : path_cases(name, [options] { return make_shm_path(options); }, limits)) {
      cases.push_back(std::move(one));
    }
  };
  add("shm", {});
  add("shm_copies", {.direct_read_bytes_min = SIZE_MAX});
  // So that everything is used up now and then.
  add("shm_small",
      {.ring_bytes = 64 * 1024, .slab_bytes = 512 * 1024, .eager_bytes = 1000, .direct_read_bytes_min = 300'000});
  add("shm_no_slab", {.ring_bytes = 64 * 1024, .slab_bytes = 0, .eager_bytes = 0, .direct_read_bytes_min = SIZE_MAX});
  add("shm_reads", {.slab_bytes = 0, .direct_read_bytes_min = 8 * 1024 + 1});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shm, PathSuite, testing::ValuesIn(shm_cases()), name_of_path_case);

}  // namespace
}  // namespace hawser::transport
