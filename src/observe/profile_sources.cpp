#include "observe/profile_sources.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "profile/symbols.h"

namespace hawser::observe {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;

// Names of functions; each address is looked up once.
class SourceNames {
 public:
  // `return_address`: it may lie behind the end of the function that called.
  const std::string& of(const void* address, bool return_address) {
    const auto* const place = static_cast<const char*>(address) - (return_address ? 1 : 0);
    const auto [at, added] = names_.emplace(place, std::string());
    if (added) at->second = symbols_.name(place);
    return at->second;
  }

 private:
  Symbols symbols_;
  std::map<const void*, std::string> names_;
};

// Adds up stacks with equal names.
class Sums {
 public:
  void add(Profile::Stack stack) {
    Key key{std::move(stack.group), std::move(stack.thread), std::move(stack.frames)};
    std::vector<std::uint64_t>& values = sums_[std::move(key)];
    values.resize(std::max(values.size(), stack.values.size()));
    for (std::size_t i = 0; i < stack.values.size(); ++i) values[i] = profile_sum(values[i], stack.values[i]);
  }
  std::vector<Profile::Stack> take() const {
    std::vector<Profile::Stack> stacks;
    stacks.reserve(sums_.size());
    for (const auto& [key, values] : sums_) stacks.push_back({key.thread, key.frames, values, key.group});
    return stacks;
  }

 private:
  struct Key {
    std::string group;
    std::string thread;
    std::vector<std::string> frames;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::vector<std::uint64_t>> sums_;
};

std::string seconds_text(double seconds) { return fixed_text(seconds, 1) + " s"; }

// The names of system calls in which threads usually wait (x86-64).
std::string call_name(std::int64_t call) {
  struct Known {
    std::int64_t number;
    std::string_view name;
  };
  static constexpr Known known[] = {{0, "read"},
                                    {1, "write"},
                                    {7, "poll"},
                                    {17, "pread64"},
                                    {18, "pwrite64"},
                                    {19, "readv"},
                                    {20, "writev"},
                                    {23, "select"},
                                    {34, "pause"},
                                    {35, "nanosleep"},
                                    {42, "connect"},
                                    {43, "accept"},
                                    {44, "sendto"},
                                    {45, "recvfrom"},
                                    {46, "sendmsg"},
                                    {47, "recvmsg"},
                                    {61, "wait4"},
                                    {72, "fcntl"},
                                    {73, "flock"},
                                    {74, "fsync"},
                                    {75, "fdatasync"},
                                    {128, "rt_sigtimedwait"},
                                    {202, "futex"},
                                    {208, "io_getevents"},
                                    {230, "clock_nanosleep"},
                                    {232, "epoll_wait"},
                                    {247, "waitid"},
                                    {270, "pselect6"},
                                    {271, "ppoll"},
                                    {277, "sync_file_range"},
                                    {281, "epoll_pwait"},
                                    {288, "accept4"},
                                    {295, "preadv"},
                                    {296, "pwritev"},
                                    {426, "io_uring_enter"},
                                    {441, "epoll_pwait2"},
                                    {449, "futex_waitv"}};
  if (call == WaitSampler::page_fault) return "[page fault]";
  if (call == WaitSampler::no_processor) return "[waits for a processor]";
  const auto* const at = std::ranges::find(known, call, &Known::number);
  return at == std::end(known) ? "[system call " + std::to_string(call) + "]" : "[" + std::string(at->name) + "]";
}

std::uint64_t rounded(double value) {
  if (!(value > 0)) return 0;
  return value < static_cast<double>(profile_value_max) ? static_cast<std::uint64_t>(std::llround(value))
                                                        : profile_value_max;
}

}  // namespace

Profile cpu_profile(const CpuSampler& sampler, unsigned hertz, double seconds) {
  Profile profile{.kinds = {{"samples", "count"}, {"cpu", "nanoseconds"}},
                  .period_kind = {"cpu", "nanoseconds"},
                  .period = second_ns / std::max(hertz, 1U),
                  .seconds = seconds};
  SourceNames names;
  Sums sums;
  std::map<std::int32_t, std::string> threads;
  for (const CpuSampler::Sample& sample : sampler.samples()) {
    const auto [thread, added] = threads.emplace(sample.thread, std::string());
    if (added) thread->second = thread_name(sample.thread);
    Profile::Stack stack{.thread = thread->second, .frames = {}, .values = {1, profile.period}};
    for (std::uint32_t i = sample.depth; i-- > 0;) stack.frames.push_back(names.of(sample.frames[i], i != 0));
    sums.add(std::move(stack));
  }
  profile.stacks = sums.take();
  profile.caption =
      "of processor time in " + seconds_text(seconds) + ", " + std::to_string(hertz) + " in a second of each thread";
  if (sampler.lost() != 0) {
    profile.caption += "; without the last " + std::to_string(sampler.lost()) + ": there is room for " +
                       std::to_string(CpuSampler::samples_max);
  }
  if (sampler.threads_left_out() != 0) {
    profile.caption += "; without " + count_text(sampler.threads_left_out(), "further thread");
  }
  return profile;
}

Profile wait_profile(const WaitSampler& sampler, unsigned hertz, double seconds, bool with_idle) {
  Profile profile{.kinds = {{"samples", "count"}, {"delay", "nanoseconds"}},
                  .shown = 1,
                  .period_kind = {"delay", "nanoseconds"},
                  .period = second_ns / std::max(hertz, 1U),
                  .seconds = seconds};
  SourceNames names;
  Sums sums;
  std::uint64_t idle_ns = 0;
  std::uint64_t cut = 0;
  for (const WaitSampler::Stack& one : sampler.stacks()) {
    if (one.idle) idle_ns += one.nanoseconds;
    if (one.idle && !with_idle) continue;
    if (!one.complete) ++cut;
    Profile::Stack stack{
        .thread = one.thread, .frames = {}, .values = {one.samples, one.nanoseconds}, .group = one.idle ? "idle" : ""};
    for (std::size_t i = one.frames.size(); i-- > 0;) stack.frames.push_back(names.of(one.frames[i], i != 0));
    stack.frames.push_back(call_name(one.call));
    sums.add(std::move(stack));
  }
  profile.stacks = sums.take();
  profile.caption = "of waiting of " + count_text(sampler.threads(), "thread") + " in " + seconds_text(seconds) + ", " +
                    count_text(sampler.passes(), "sample");
  if (!with_idle) profile.caption += "; " + value_text(idle_ns, "nanoseconds") + " idle are left out";
  if (cut != 0) profile.caption += "; " + count_text(cut, "stack") + " without the outer functions";
  if (sampler.lost_nanoseconds() != 0) {
    profile.caption += "; " + value_text(sampler.lost_nanoseconds(), "nanoseconds") + " were lost: too many stacks";
  }
  if (sampler.threads_left_out() != 0) {
    profile.caption += "; without " + count_text(sampler.threads_left_out(), "further thread");
  }
  if (sampler.failed_passes() != 0) {
    profile.caption +=
        "; " + count_text(sampler.failed_passes(), "sample") + " without all threads: too many open files";
  }
  return profile;
}

Profile allocation_profile(const AllocationSampler::Report& began, const AllocationSampler::Report& after,
                           AllocationView view) {
  const bool live = view == AllocationView::live;
  // The numbers of another profile cannot be subtracted.
  const bool changed = began.profile != 0 && began.profile != after.profile;
  const AllocationSampler::Report none;
  const AllocationSampler::Report& before = changed ? none : began;
  const double seconds = after.seconds - before.seconds;
  Profile profile{.kinds = {{"alloc_objects", "count"},
                            {"alloc_space", "bytes"},
                            {"inuse_objects", "count"},
                            {"inuse_space", "bytes"}},
                  .shown = live ? 3U : 1U,
                  .period_kind = {"space", "bytes"},
                  .period = after.interval_bytes,
                  .seconds = seconds};
  std::map<std::vector<const void*>, AllocationSampler::Totals> earlier;
  for (const AllocationSampler::Stack& stack : before.stacks) earlier[stack.frames] = stack.totals;
  SourceNames names;
  Sums sums;
  std::uint64_t samples = 0;
  for (const AllocationSampler::Stack& one : after.stacks) {
    const auto at = earlier.find(one.frames);
    const AllocationSampler::Totals past = at == earlier.end() ? AllocationSampler::Totals() : at->second;
    const AllocationSampler::Totals& now = one.totals;
    samples += now.samples - past.samples;
    Profile::Stack stack;
    stack.values = {rounded(now.allocated_objects - past.allocated_objects),
                    rounded(now.allocated_bytes - past.allocated_bytes), rounded(now.live_objects),
                    rounded(now.live_bytes)};
    if (std::ranges::all_of(stack.values, [](std::uint64_t value) { return value == 0; })) continue;
    for (std::size_t i = one.frames.size(); i-- > 0;) stack.frames.push_back(names.of(one.frames[i], true));
    if (one.frames.empty()) stack.frames.emplace_back("[other stacks]");
    sums.add(std::move(stack));
  }
  profile.stacks = sums.take();
  profile.caption = (live ? "still in use of what was allocated in " : "allocated in ") + seconds_text(seconds) + ", " +
                    count_text(samples, "sample") + ", one for " + value_text(after.interval_bytes, "bytes");
  if (changed) profile.caption += "; the program ended its profile meanwhile, and what was in it is missing";
  const std::uint64_t unknown = after.without_stack - before.without_stack;
  if (unknown != 0) profile.caption += "; " + std::to_string(unknown) + " without a stack: too many stacks";
  if (after.not_followed != 0) {
    profile.caption += "; without the later use of " + std::to_string(after.not_followed) + ": too many live samples";
  }
  return profile;
}

}  // namespace hawser::observe
