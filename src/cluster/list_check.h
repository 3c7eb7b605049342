#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/naming.h"

namespace hawser::cluster {

// Checks a list of endpoints in steps, so that a long one does not block a loop. Endpoints that are invalid, and those
// whose address an earlier one has, are dropped.
class ListCheck {
 public:
  static constexpr std::size_t endpoints_of_step = 128;

  // Not null. `seed`: whoever writes lists must not know it.
  ListCheck(std::shared_ptr<const std::vector<Endpoint>> list, std::uint64_t seed);

  // Does a bounded part of the work. True if there is more. `present`, with which the list is compared, is the same
  // each time.
  bool work(const std::vector<Endpoint>& present);
  const std::shared_ptr<const std::vector<Endpoint>>& list() const noexcept { return list_; }

  // The rest holds when work() has returned false. The endpoints that are not dropped are those of `present`.
  bool same() const noexcept { return same_; }
  std::vector<Endpoint> take() { return std::move(good_); }
  std::uint64_t dropped() const noexcept { return dropped_; }
  std::string take_drop_reason() { return std::move(drop_reason_); }  // The last one.

 private:
  // Remembers that the address is that of good_[index], or returns false because an earlier one has it.
  bool note_address(const std::string& address, std::size_t index);

  const std::shared_ptr<const std::vector<Endpoint>> list_;
  const std::uint64_t seed_;
  std::size_t next_ = 0;  // Index of the endpoint that is checked next.
  std::vector<Endpoint> good_;
  // A hash table of the addresses of good_ with linear probing: indices plus one; 0: free. It ends in one step whatever
  // its size.
  std::vector<std::uint32_t> places_;
  bool same_ = true;
  std::uint64_t dropped_ = 0;
  std::string drop_reason_;
};

}  // namespace hawser::cluster
