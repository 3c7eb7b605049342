#pragma once

// Includes the public API of Hawser: calls between machines as coroutines, over the best transport that both sides
// have.

#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/context.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/runtime.h"
#include "hawser/scope.h"
#include "hawser/server.h"
#include "hawser/stream.h"
#include "hawser/task.h"
#include "hawser/when.h"
