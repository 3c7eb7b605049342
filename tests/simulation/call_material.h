#pragma once

#include <algorithm>
#include <stop_token>
#include <string>
#include <vector>

#include "tests/simulation/world.h"

namespace hawser::simulation {

// Bytes of a request. They are overwritten as soon as the caller may do so, so that a later send of them is detected.
struct Material {
  Material(std::uint64_t id, std::size_t size) : text(content(id, size)) {}
  Material(const Material&) = delete;
  Material& operator=(const Material&) = delete;
  ~Material() { spoil(); }
  void spoil() { std::fill(text.begin(), text.end(), '\xdd'); }

  std::string text;
};

// Memory for into(). It is checked until the end of the run, or freed at once so that a sanitizer detects a later use.
struct Target {
  Target(World& owner, std::size_t size) : world(owner), bytes(size) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() {
    if (world.random.chance(0.5)) world.checker.retire(std::move(bytes));
  }

  World& world;
  std::vector<std::byte> bytes;
};

// Requests a stop at a random time, or never.
struct Canceller {
  Canceller(World& world, bool wanted) {
    if (!wanted) return;
    const std::uint64_t which = world.below(4);
    if (which == 0) {
      source.request_stop();
    } else {
      timer.start(world.loop, world.loop.now() + world.up_to(std::chrono::milliseconds(which == 1 ? 1 : 20)));
    }
  }
  void cancel() noexcept { source.request_stop(); }

  std::stop_source source;
  MemberTimer<&Canceller::cancel> timer{*this};
};

}  // namespace hawser::simulation
