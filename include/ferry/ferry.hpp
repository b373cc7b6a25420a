#pragma once

// Everything of the C++ API. Namespace ferry; see docs/architecture.md for how a token travels.

#include "ferry/error.hpp"
#include "ferry/exchange.hpp"
#include "ferry/group.hpp"
#include "ferry/tensor.hpp"
#include "ferry/version.hpp"
