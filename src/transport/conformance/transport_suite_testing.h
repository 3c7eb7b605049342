#pragma once

// Tests the contracts of Transport and Connection on any transport. The test of a backend instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, TransportSuite, testing::ValuesIn(transport_cases("shm", make, {eager, ring})),
//   name_of_transport_case);
#include "transport/conformance/transport_fixture_testing.h"
#include "transport/conformance/transport_suite_end_testing.h"
#include "transport/conformance/transport_suite_flow_testing.h"
#include "transport/conformance/transport_suite_garbage_testing.h"
#include "transport/conformance/transport_suite_messages_testing.h"
