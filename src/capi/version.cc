#include "ferry/version.hpp"

#include "ferry/ferry.h"

const char* ferry_version(void) { return ferry::version(); }
