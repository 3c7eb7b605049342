#pragma once

// The test kit: services over a simulated network, in virtual time, repeated by seed. It works with any test framework.
// Programs link hawser::testing. See docs/testing.md.

#include "hawser/testing/seeds.h"
#include "hawser/testing/simulation.h"
