#pragma once

// What Transport and Connection promise, tried on any transport. A backend's test instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, TransportSuite, testing::ValuesIn(transport_cases("shm", make, {eager, ring})),
//   name_of_transport_case);
#include "transport/conformance/transport_fixture_testing.h"
#include "transport/conformance/transport_suite_end_testing.h"
#include "transport/conformance/transport_suite_flow_testing.h"
#include "transport/conformance/transport_suite_garbage_testing.h"
#include "transport/conformance/transport_suite_messages_testing.h"
